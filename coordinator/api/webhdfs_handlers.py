"""The type of what answers an operation of WebHDFS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from peacefs.protocol.asgi import Scope
from peacefs.protocol.webhdfs.answers import Answer, JsonStream

#: Takes the request, whose class is the handler's own, and the scope that it came with.
Handler = Callable[[Any, Scope], Awaitable[Answer | JsonStream]]
