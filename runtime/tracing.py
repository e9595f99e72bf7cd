"""Tracing: records how long each part of a request took, in every process that served it.

Nothing is traced unless the process has installed a tracer (`service.open_telemetry`). Cores and participants do
not know about tracing: it only observes the effects that a participant yields. Whether a request is traced depends
on its id, so all processes make the same decision.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextvars import Token
from types import TracebackType
from typing import Protocol, TypeVar

from peacefs.protocol.messages import Packet, WriteChunk
from peacefs.protocol.trace_context import Recording, TraceContext, current, current_or_new, enter, leave

from . import effects as fx

T = TypeVar("T")
Attributes = Mapping[str, str | int | float]
_FORWARDED = (WriteChunk, Packet)
_NAMES: Mapping[type[fx.Effect], str] = {
    fx.Connect: "connect",
    fx.Receive: "receive",
    fx.ReceiveMore: "receive",
    fx.ReceiveDescriptor: "receive",
    fx.Send: "send",
    fx.SendFile: "send",
    fx.SendDescriptor: "send",
    fx.Call: "call",
    fx.AppendToFile: "append",
    fx.Sync: "fsync",
    fx.SyncDirectory: "fsync of the directory",
    fx.RenameFile: "rename",
    fx.ReadPart: "read",
    fx.ReadAt: "read",
    fx.ReadInto: "read",
    fx.Sleep: "sleep",
    fx.Wait: "wait",
}


class Tracer(Protocol):
    """Records the traces of one process. Thread-safe."""

    def begin(self, name: str, context: TraceContext, attributes: Attributes) -> Recording | None:
        """Begin a span within the one that the context names; return None if the request is not traced."""


_tracer: Tracer | None = None


def install(tracer: Tracer | None) -> None:
    """Set the tracer of this process, before it serves requests; None stops tracing."""
    global _tracer
    _tracer = tracer


def is_tracing() -> bool:
    return _tracer is not None


def traced(name: str, context: TraceContext, attributes: Attributes) -> TraceContext:
    """Begin a span and return its context; the caller must end it. If not traced, return the given context."""
    recording = None if _tracer is None else _tracer.begin(name, context, attributes)
    return context if recording is None else TraceContext(context.id, recording.id, recording)


class spanning:
    """Context manager: `with spanning("OPEN"):` records its body as a span of the current request, if traced."""

    __slots__ = ("_attributes", "_name", "_recording", "_token")

    def __init__(self, name: str, attributes: Attributes | None = None) -> None:
        self._name = name
        self._attributes = attributes
        self._recording: Recording | None = None
        self._token: Token[TraceContext | None]

    def __enter__(self) -> Recording | None:
        if _tracer is None or (before := current()) is None:
            return None
        context = traced(self._name, before, self._attributes or {})
        if context is not before:
            self._recording = context.recording
            self._token = enter(context)
        return self._recording

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._recording is not None:
            leave(self._token)
            self._recording.end("" if kind is None else kind.__name__)


class operation:
    """Context manager: `with operation("read"):` records a span like `spanning`, and begins a request if
    needed.
    """

    __slots__ = ("_attributes", "_context", "_is_own", "_name", "_token")

    def __init__(self, name: str, attributes: Attributes | None = None) -> None:
        self._name = name
        self._attributes = attributes

    def __enter__(self) -> TraceContext:
        before = current_or_new()
        self._context = before if _tracer is None else traced(self._name, before, self._attributes or {})
        self._is_own = self._context is not before
        self._token = enter(self._context)
        return self._context

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave(self._token)
        if self._is_own and self._context.recording is not None:
            self._context.recording.end("" if kind is None else kind.__name__)


class beginning(operation):
    """An `operation` that continues after the `with` body: the caller ends the span, unless the body fails."""

    __slots__ = ()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            super().__exit__(kind, error, trace)
        else:
            leave(self._token)


class _Phase:
    """All effects of one kind within a request: begin of the first, end of the last, total duration and count."""

    __slots__ = ("begin_ns", "busy_ns", "count", "end_ns")

    def __init__(self, begin_ns: int) -> None:
        self.begin_ns = begin_ns
        self.end_ns = begin_ns
        self.busy_ns = 0
        self.count = 0


class _Phases:
    """Collects the phases of the request that a participant serves."""

    def __init__(self) -> None:
        self._recording: Recording | None = None
        self._found: dict[tuple[str, str], _Phase] = {}

    def note(self, effect: fx.Effect, begin_ns: int) -> None:
        context = current()
        recording = None if context is None else context.recording
        name = _NAMES.get(type(effect))
        if recording is None or name is None:
            return
        if recording is not self._recording:
            self.flush()
            self._recording = recording
        if isinstance(effect, fx.Call):
            name = type(effect.message).__name__
        elif isinstance(effect, fx.Send) and isinstance(effect.message, _FORWARDED):
            name = "forward"
        connection = getattr(effect, "connection", None)
        peer = getattr(effect, "name", "") if connection is None else connection.peer
        phase = self._found.get((name, peer))
        if phase is None:
            phase = self._found[name, peer] = _Phase(begin_ns)
        phase.end_ns = time.time_ns()
        phase.busy_ns += phase.end_ns - begin_ns
        phase.count += 1

    def flush(self) -> None:
        if self._recording is not None:
            for (name, peer), phase in self._found.items():
                attributes: dict[str, str | int | float] = {"count": phase.count, "busy_ms": phase.busy_ns / 1e6}
                if peer:
                    attributes["peer"] = peer
                self._recording.phase(name, phase.begin_ns, phase.end_ns, attributes)
        self._recording = None
        self._found = {}


def observed(steps: fx.Steps[T]) -> fx.Steps[T]:
    """Run a participant and record its effects as phases of the current spans."""
    phases = _Phases()
    try:
        effect = next(steps)
        while True:
            begins_request = isinstance(effect, fx.Receive) and effect.begins_request
            if begins_request:
                phases.flush()
            begin_ns = time.time_ns()
            try:
                result = yield effect
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as fault:
                phases.note(effect, begin_ns)
                effect = steps.throw(fault)
            else:
                if not begins_request:
                    phases.note(effect, begin_ns)
                effect = steps.send(result)
    except StopIteration as stop:
        finished: T = stop.value
        return finished
    finally:
        phases.flush()


def observed_here(steps: fx.Steps[T]) -> fx.Steps[T]:
    """Return `observed(steps)` if the current request is recorded, else `steps`."""
    context = current()
    return steps if context is None or context.recording is None else observed(steps)
