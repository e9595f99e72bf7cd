"""The trace context: the id of the request that the running code serves, passed on through all services.

Only shells and drivers use it, to name the request in logs and in messages sent on its behalf. Cores and
participants never see it. Clients may choose any id, so an id grants no permission.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Final, Generic, Protocol, TypeVar

from msgspec.structs import replace

from peacefs.protocol.messages import Message, TracedMessage

# Longer ids are replaced by a new one.
trace_id_characters_max: Final = 64


C = TypeVar("C", bound="TraceContext | None")
#: The HTTP header for the id, in requests and in answers.
TRACE_HEADER: Final = b"x-request-id"
_WELL_FORMED = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._:-]{{0,{trace_id_characters_max - 1}}}")
_SPAN = re.compile("[0-9a-f]{16}")
_ID_BITS = 128


class Recording(Protocol):
    """A span that is being recorded, in a process with tracing enabled (`tracing`). It is ended exactly once."""

    @property
    def id(self) -> str:
        """The span's id: 16 hexadecimal digits."""

    def phase(self, name: str, begin_ns: int, end_ns: int, attributes: Mapping[str, str | int | float]) -> None:
        """Add a finished part of the span; times are from `time.time_ns`."""

    def end(self, error: str = "") -> None:
        """End the span now; `error` is empty if it succeeded."""


class TraceContext:
    """The id of a request. If the request is traced, also the id of the current span, and the span itself if this
    process records it. Immutable, but for the id that is drawn late.
    """

    __slots__ = ("_id", "recording", "span")

    def __init__(self, id: str = "", span: str = "", recording: Recording | None = None) -> None:
        """Without an id, draw one when it is first asked for."""
        self._id = id
        self.span = span
        self.recording = recording

    @property
    def id(self) -> str:
        if not self._id:
            self._id = new_trace_id()
        return self._id


_current: ContextVar[TraceContext | None] = ContextVar("peacefs-trace", default=None)
#: Return the context of the running code, or None if it serves no request.
current: Final = _current.get


def current_id() -> str:
    """Return the id of the request that the running code serves, or an empty string."""
    context = _current.get()
    return "" if context is None else context.id


def new_trace_id() -> str:
    """Return a random id of 32 hexadecimal digits, like OpenTelemetry's trace ids."""
    return f"{random.getrandbits(_ID_BITS) or 1:032x}"


def is_well_formed(text: str) -> bool:
    """Return whether an id from outside is short and has only letters, digits and `._:-`."""
    if text.isalnum() and text.isascii() and len(text) <= trace_id_characters_max:
        return True  # all ids of `new_trace_id`; the regular expression takes four times as long
    return _WELL_FORMED.fullmatch(text) is not None


def continued(text: str, span: str = "") -> TraceContext:
    """Return the context of a request that arrived with this id; with a new id if it is malformed."""
    if not text or not is_well_formed(text):
        return TraceContext()
    return TraceContext(text, span if span and _SPAN.fullmatch(span) else "")


def context_of(message: Message) -> TraceContext:
    """Return the context of a peer's message; with a new id if it has none or a malformed one."""
    if not isinstance(message, TracedMessage) or not message.trace:
        return TraceContext()
    return continued(message.trace, message.span)


def stamped(message: Message) -> Message:
    """Return the message with the current request's id, if its type carries one and it has none."""
    context = _current.get()
    if context is None or not isinstance(message, TracedMessage) or message.trace:
        return message
    return replace(message, trace=context.id, span=context.span)


def begun(message: Message) -> Message:
    """Stamp the message as `stamped` does, but with a new id if there is no current request."""
    if _current.get() is not None or not isinstance(message, TracedMessage):
        return stamped(message)
    return replace(message, trace=new_trace_id())


def enter(context: TraceContext | None) -> Token[TraceContext | None]:
    """Set the context of this task or thread; None if it serves no request. Undo it with `leave`."""
    return _current.set(context)


def switch_to(context: TraceContext | None) -> None:
    """Set the context like `enter`, but without a way to undo it. Cheap if the context is unchanged."""
    if _current.get() is not context:
        _current.set(context)


def leave(token: Token[TraceContext | None]) -> None:
    """Undo `enter`."""
    _current.reset(token)


def current_or_new() -> TraceContext:
    """Return the context of the running code, or a new one."""
    return _current.get() or TraceContext()


class serving(Generic[C]):
    """Context manager: `with serving(context):` runs its body in this context."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: C) -> None:
        self._context = context
        self._token: Token[TraceContext | None]

    def __enter__(self) -> C:
        self._token = _current.set(self._context)
        return self._context

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.reset(self._token)
