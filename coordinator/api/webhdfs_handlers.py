"""The type of the functions that answer WebHDFS operations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from peacefs.protocol.asgi import Scope
from peacefs.protocol.webhdfs.answers import Answer, JsonStream

#: Takes the parsed request, which is of the class that the handler is registered for, and its scope.
Handler = Callable[[Any, Scope], Awaitable[Answer | JsonStream]]
