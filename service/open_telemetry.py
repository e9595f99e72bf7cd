"""Tracing with OpenTelemetry's SDK, to a collector or a file. Needs the extra `tracing`.

The trace id is the request id, or its hash unless it is 32 hexadecimal digits. So all processes that serve a
request use the same trace, and make the same decision about sampling it.
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

# How long a stopping process waits for the export of its last spans.
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
    """Return OpenTelemetry's trace id for a request id."""
    return int(id if _DRAWN.fullmatch(id) else hashlib.sha256(id.encode()).hexdigest()[:32], 16)


class _RequestIds(IdGenerator):
    """Makes the next trace that a thread begins use the id of its request."""

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
    """Implements `runtime.tracing.Tracer`. Owns a thread that exports spans, until `close`."""

    def __init__(self, role: str, name: str, exporter: SpanExporter, share: float) -> None:
        """Trace a `share` (0 to 1) of the requests, selected by their ids."""
        self._sampled_below = round(share * _SAMPLED_OF)
        self._ids = _RequestIds()
        self._provider = TracerProvider(
            # `begin` has already decided about sampling.
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
        """Begin a span if the caller's process traces this request, or the request begins here and is sampled."""
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
        """Export the remaining spans, within `trace_export_timeout_s`."""
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
    """Appends spans to a file for `peacefs trace`, one JSON object per line. Processes may share the file."""

    def __init__(self, path: Path) -> None:
        """Open the file for appending. Raises StartupError."""
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise StartupError(f"cannot write traces to {path}: {error.strerror}") from None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write each line with one call, so that lines of several processes do not mix."""
        try:
            for span in spans:
                self._file.write(span.to_json(indent=None).encode() + b"\n")
        except OSError:
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self._file.close()


def start_tracing(role: str, name: str, options: TraceOptions) -> Callable[[], None]:
    """Start tracing; return the function that stops it. Raises StartupError."""
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
