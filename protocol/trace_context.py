"""The request that the running code serves: an id that goes with it from the client through all services.

Belongs to shells and drivers alone: it names the request in logs and in what is asked of others on its behalf. No
core and no participant decides anything by it, and none gets to see it. An id is a label that anybody may choose:
nothing is permitted by it.
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

# The id by which a request is named in logs: a longer one is replaced.
trace_id_characters_max: Final = 64


C = TypeVar("C", bound="TraceContext | None")
#: The HTTP header that brings an id, and takes it back.
TRACE_HEADER: Final = b"x-request-id"
_WELL_FORMED = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._:-]{{0,{trace_id_characters_max - 1}}}")
_SPAN = re.compile("[0-9a-f]{16}")
_ID_BITS = 128


class Recording(Protocol):
    """A span that is being recorded, in a process that traces (`tracing`). Ended once."""

    @property
    def id(self) -> str:
        """Return 16 hexadecimal digits."""

    def phase(self, name: str, begin_ns: int, end_ns: int, attributes: Mapping[str, str | int | float]) -> None:
        """Add a part that is over already; times are of `time.time_ns`."""

    def end(self, error: str = "") -> None:
        """It is over now; `error` says how it failed, if it did."""


class TraceContext:
    """The id of a request; where it is traced, the id of the span that this is within, and the span itself if it
    is of this process. Immutable."""

    __slots__ = ("id", "recording", "span")

    def __init__(self, id: str, span: str = "", recording: Recording | None = None) -> None:
        self.id = id
        self.span = span
        self.recording = recording


_current: ContextVar[TraceContext | None] = ContextVar("peacefs-trace", default=None)
#: Return the context of the running code; None where it serves nobody's request.
current: Final = _current.get


def current_id() -> str:
    """Return the id of the request that the running code serves; empty if it serves none."""
    context = _current.get()
    return "" if context is None else context.id


def new_trace_id() -> str:
    """Draw an id: 32 hexadecimal digits, as OpenTelemetry's trace ids."""
    return f"{random.getrandbits(_ID_BITS) or 1:032x}"


def is_well_formed(text: str) -> bool:
    """Return whether a stranger's id is short, and of letters, digits and `._:-` alone."""
    if text.isalnum() and text.isascii() and len(text) <= trace_id_characters_max:
        return True  # as those are that we draw; the expression would take four times as long
    return _WELL_FORMED.fullmatch(text) is not None


def continued(text: str, span: str = "") -> TraceContext:
    """Return the context of a request that came with this id; it gets another if that is none."""
    if not is_well_formed(text):
        return TraceContext(new_trace_id())
    return TraceContext(text, span if span and _SPAN.fullmatch(span) else "")


def context_of(message: Message) -> TraceContext:
    """Return the context that a peer's message came with; another where it came without, or with a bad one."""
    return continued(message.trace, message.span) if isinstance(message, TracedMessage) else continued("")


def stamped(message: Message) -> Message:
    """Return the message as it is sent: what asks for something bears the id of the current request."""
    context = _current.get()
    if context is None or not isinstance(message, TracedMessage) or message.trace:
        return message
    return replace(message, trace=context.id, span=context.span)


def begun(message: Message) -> Message:
    """The same for a request that may begin here: without a current one it gets an id of its own."""
    if _current.get() is not None or not isinstance(message, TracedMessage):
        return stamped(message)
    return replace(message, trace=new_trace_id())


def enter(context: TraceContext | None) -> Token[TraceContext | None]:
    """Serve a request from here on, in this task or thread; None for none."""
    return _current.set(context)


def switch_to(context: TraceContext | None) -> None:
    """Serve a request from here on, as `enter`, for who never goes back: it costs little where nothing changes."""
    if _current.get() is not context:
        _current.set(context)


def leave(token: Token[TraceContext | None]) -> None:
    """Undo `enter`."""
    _current.reset(token)


def current_or_new() -> TraceContext:
    """Return the context of the running code, or of a request that begins here."""
    return _current.get() or TraceContext(new_trace_id())


class serving(Generic[C]):
    """`with serving(context):` the code within serves that request."""

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
