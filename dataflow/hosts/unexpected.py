"""Errors of callbacks and tasks that nobody waits for: a node or a query does not go on as if there were none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


def on_unexpected(tell: Callable[[BaseException], None]) -> None:
    """Tell of errors of callbacks and tasks of the running loop that nobody waits for."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        loop.default_exception_handler(context)
        # A connection may break at any time, which its users are told otherwise.
        if error is not None and not isinstance(error, OSError):
            tell(error)

    asyncio.get_running_loop().set_exception_handler(handle)
