"""Unhandled errors of callbacks and tasks: they end the node or the query instead of being ignored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


def on_unexpected(tell: Callable[[BaseException], None]) -> None:
    """Call `tell` with unhandled errors of callbacks and tasks of the running loop."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        loop.default_exception_handler(context)
        # A connection may break at any time; its users are told in another way.
        if error is not None and not isinstance(error, OSError):
            tell(error)

    asyncio.get_running_loop().set_exception_handler(handle)
