"""A request that arrived in a frame: its trace context, span and duration."""

from __future__ import annotations

import logging
import time

from peacefs.protocol.ids import show
from peacefs.protocol.messages import Message
from peacefs.protocol.trace_context import context_of

from .tracing import is_tracing, traced

log = logging.getLogger("peacefs.requests")


class ServedRequest:
    """Created when the request arrives. Call `end` when the connection is free again or closed."""

    __slots__ = ("_began_s", "_message", "context")

    def __init__(self, message: Message) -> None:
        context = context_of(message)
        self.context = traced(type(message).__name__, context, {}) if is_tracing() else context
        self._message = message
        self._began_s = time.monotonic()

    def end(self) -> None:
        """End the span, and log the request at level DEBUG. Call this in the request's context."""
        if self.context.recording is not None:
            self.context.recording.end()
        if log.isEnabledFor(logging.DEBUG):
            chunk = getattr(self._message, "chunk", None)
            about = "" if chunk is None else f" of chunk {show(chunk)}"
            duration_ms = (time.monotonic() - self._began_s) * 1000
            log.debug("%s%s: over after %.1f ms", type(self._message).__name__, about, duration_ms)


def is_observed() -> bool:
    """Return whether each request is traced or logged, so that requests must be served one at a time."""
    return is_tracing() or log.isEnabledFor(logging.DEBUG)
