"""Traces of a process by OpenTelemetry's SDK, to a collector or a file. Of the extra `tracing`.

The id of a trace is that of the request where it was drawn, and follows from it otherwise: so do all processes
that serve a request put their spans into one trace, and decide alike whether it is one of those that are sampled.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from peacefs.protocol.errors import StartupError
from peacefs.protocol.trace_context import Recording, TraceContext
from peacefs.service.trace_options import TraceOptions

# A process that ends waits so long for its last spans to be exported.
trace_export_timeout_s: Final = 5.0


try:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON
    from opentelemetry.trace import (
        NonRecordingSpan,
        Span,
        SpanContext,
        Status,
        StatusCode,
        TraceFlags,
        Tracer,
        set_span_in_context,
    )
except ImportError:
    raise StartupError("traces need OpenTelemetry: install peacefs[tracing]") from None

_DRAWN = re.compile("[0-9a-f]{32}")
_SAMPLED_OF = 1 << 64


def trace_number(id: str) -> int:
    """Return OpenTelemetry's number of the trace of a request."""
    return int(id if _DRAWN.fullmatch(id) else hashlib.sha256(id.encode()).hexdigest()[:32], 16)


class _RequestIds(IdGenerator):
    """Gives the trace that a thread begins the number of its request."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self._next = threading.local()

    def begins(self, number: int) -> None:
        self._next.number = number

    def generate_span_id(self) -> int:
        return int(self._random.generate_span_id())

    def generate_trace_id(self) -> int:
        return int(self._next.number)


class OpenTelemetryTracer:
    """See `runtime.tracing.Tracer`. Owns a thread that exports, until `close`."""

    def __init__(self, role: str, name: str, exporter: SpanExporter, share: float) -> None:
        """`share` of the requests are traced: all those whose id is low enough."""
        self._sampled_below = round(share * _SAMPLED_OF)
        self._ids = _RequestIds()
        self._provider = TracerProvider(
            # The decision is made before a span is begun.
            sampler=ALWAYS_ON,
            resource=Resource.create({"service.name": role, "service.instance.id": name}),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer: Tracer = self._provider.get_tracer("peacefs")

    def begin(
        self, name: str, context: TraceContext, attributes: Mapping[str, str | int | float]
    ) -> Recording | None:
        """Trace what another process traces, too, and of what begins here the share."""
        number = trace_number(context.id)
        if context.span:
            parent = SpanContext(number, int(context.span, 16), is_remote=True, trace_flags=TraceFlags(1))
            within = set_span_in_context(NonRecordingSpan(parent))
        elif number % _SAMPLED_OF < self._sampled_below:
            self._ids.begins(number)
            within = None
        else:
            return None
        span = self._tracer.start_span(name, within, attributes={"request": context.id, **attributes})
        return _RecordedSpan(self._tracer, span)

    def close(self) -> None:
        """Export what is still waiting, for a moment."""
        self._provider.force_flush(round(trace_export_timeout_s * 1000))
        self._provider.shutdown()


class _RecordedSpan:
    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer = tracer
        self._span = span
        self._context = set_span_in_context(span)

    @property
    def id(self) -> str:
        return f"{self._span.get_span_context().span_id:016x}"

    def phase(self, name: str, begin_ns: int, end_ns: int, attributes: Mapping[str, str | int | float]) -> None:
        span = self._tracer.start_span(name, self._context, attributes=dict(attributes), start_time=begin_ns)
        span.end(end_ns)

    def end(self, error: str = "") -> None:
        if error:
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()


class FileExporter(SpanExporter):
    """Appends spans to a file, a line of JSON each, for `peacefs trace`. Several processes may share it."""

    def __init__(self, path: Path) -> None:
        """Raises StartupError."""
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise StartupError(f"cannot write traces to {path}: {error.strerror}") from None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write each line with one call, so that lines of others do not mix with it."""
        try:
            for span in spans:
                self._file.write(span.to_json(indent=None).encode() + b"\n")
        except OSError:
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self._file.close()


def start_tracing(role: str, name: str, options: TraceOptions) -> Callable[[], None]:
    """Trace from now on; return what ends it. Raises StartupError."""
    from peacefs.runtime import tracing

    tracer = OpenTelemetryTracer(role, name, _exporter(options.to), options.share)
    tracing.install(tracer)

    def stop() -> None:
        tracing.install(None)
        tracer.close()

    return stop


def _exporter(to: str) -> SpanExporter:
    if not to.startswith(("http://", "https://")):
        return FileExporter(Path(to))
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise StartupError("traces for a collector need its exporter: install peacefs[tracing]") from None
    endpoint = to if to.rstrip("/").endswith("/v1/traces") else to.rstrip("/") + "/v1/traces"
    return OTLPSpanExporter(endpoint=endpoint, timeout=trace_export_timeout_s)
