"""Tracing: requests to trace, phases made from effects, and drawings of spans."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from peacefs.commands.trace_drawing import as_records, drawn, read_spans, slowest
from peacefs.protocol.errors import BadRequest, PeerTimeout
from peacefs.protocol.messages import Done, KeepChunks, Message
from peacefs.protocol.trace_context import Recording, TraceContext, current, current_id, serving
from peacefs.runtime import effects as fx
from peacefs.runtime import tracing
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.thread_driver import ThreadDriver

Phase = tuple[str, dict[str, str | int | float]]


class _Span:
    def __init__(self, name: str, within: str, id: str) -> None:
        self.name, self.within, self.id = name, within, id
        self.phases: list[Phase] = []
        self.ended: list[str] = []

    def phase(self, name: str, begin_ns: int, end_ns: int, attributes: Mapping[str, str | int | float]) -> None:
        assert begin_ns <= end_ns
        self.phases.append((name, dict(attributes)))

    def end(self, error: str = "") -> None:
        self.ended.append(error)


class _Tracer:
    """Traces every request except excluded ones."""

    def __init__(self) -> None:
        self.spans: list[_Span] = []

    def begin(
        self, name: str, context: TraceContext, attributes: Mapping[str, str | int | float]
    ) -> Recording | None:
        if context.id == "off":
            return None
        self.spans.append(_Span(name, context.span, f"{len(self.spans) + 1:016x}"))
        return self.spans[-1]


@pytest.fixture
def tracer() -> Iterator[_Tracer]:
    made = _Tracer()
    tracing.install(made)
    yield made
    tracing.install(None)


def _steps(file: Path) -> fx.Steps[str]:
    opened = yield from fx.open_file(str(file), create=True)
    for _ in range(3):
        yield from fx.append(opened, b"data")
    yield from fx.sync(opened)
    yield from fx.close_file(opened)
    yield from fx.call(KeepChunks("token", []), Done)
    try:
        yield from fx.call(KeepChunks("late", []), Done)
    except PeerTimeout as fault:
        return fault.message
    return "no fault"


def _driver(asked: list[Message]) -> ThreadDriver:
    def call(message: Message, _timeout_s: float) -> Message:
        asked.append(message)
        if isinstance(message, KeepChunks) and message.token == "late":
            raise PeerTimeout("too late")
        return Done()

    return ThreadDriver(ConnectionPool.__new__(ConnectionPool), call)


def test_span_has_what_its_participant_waited_for_as_phases_and_changes_nothing(
    tracer: _Tracer, tmp_path: Path
) -> None:
    asked: list[Message] = []
    driver = _driver(asked)
    assert driver.run(_steps(tmp_path / "untraced")) == "too late"
    assert tracer.spans == []
    with tracing.operation("write", {"path": "/a"}) as context:
        assert driver.run(_steps(tmp_path / "traced")) == "too late"
    assert (tmp_path / "traced").read_bytes() == (tmp_path / "untraced").read_bytes()
    [span] = tracer.spans
    assert span.ended == [""] and span.name == "write"
    assert [(name, attributes["count"]) for name, attributes in span.phases] == [
        ("append", 3),
        ("fsync", 1),
        ("KeepChunks", 2),
    ]
    # Requests to other services carry the span.
    assert [(message.trace, message.span) for message in asked[2:]] == [(context.id, span.id)] * 2  # type: ignore[attr-defined]
    assert current() is None


def test_span_is_within_the_one_around_it_and_ends_with_the_error(tracer: _Tracer) -> None:
    with serving(TraceContext("mine", "00000000000000ff")):
        with pytest.raises(ValueError), tracing.spanning("outer"), tracing.spanning("inner"):  # noqa: PT011, PT012
            assert current_id() == "mine"
            raise ValueError
        with serving(TraceContext("off")), tracing.spanning("never"):
            pass
    outer, inner = tracer.spans
    assert (outer.within, inner.within) == ("00000000000000ff", outer.id)
    assert (outer.ended, inner.ended) == (["ValueError"], ["ValueError"])


def test_span_that_goes_on_is_ended_by_whoever_goes_on(tracer: _Tracer) -> None:
    with tracing.beginning("file") as context:
        pass
    [span] = tracer.spans
    assert span.ended == []
    assert context.recording is span
    with pytest.raises(KeyError), tracing.beginning("file"):
        raise KeyError
    assert tracer.spans[1].ended == ["KeyError"]


def test_trace_is_of_the_same_requests_in_all_processes(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="traces are an extra: install peacefs[tracing]")
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from peacefs.protocol.trace_context import new_trace_id
    from peacefs.service.open_telemetry import OpenTelemetryTracer, trace_number

    exporters = [InMemorySpanExporter() for _ in range(2)]
    tracers = [OpenTelemetryTracer("datanode", f"dn-{n}", exporter, 0.1) for n, exporter in enumerate(exporters)]
    ids = [new_trace_id() for _ in range(500)] + [f"nightly-{n}" for n in range(500)]
    for one in tracers:
        for id in ids:
            if (span := one.begin("OPEN", TraceContext(id), {})) is not None:
                span.phase("read", 1, 2, {"count": 1})
                span.end()
        one.close()
    first, second = ({span.context.trace_id for span in exporter.get_finished_spans()} for exporter in exporters)
    assert first == second and 40 < len(first) < 200
    assert first <= {trace_number(id) for id in ids}
    # A request that another process traces is traced here, whatever the share.
    exporter = InMemorySpanExporter()
    none = OpenTelemetryTracer("datanode", "dn-3", exporter, 0.0)
    assert none.begin("OPEN", TraceContext("a"), {}) is None
    within = none.begin("OPEN", TraceContext("a", "00000000000000ff"), {})
    assert within is not None
    within.end()
    none.close()
    [span] = exporter.get_finished_spans()
    assert span.parent is not None and span.parent.span_id == 255 and span.context.trace_id == trace_number("a")


def test_trace_goes_to_a_collector() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="an extra: peacefs[tracing]")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    from peacefs.client.requests import request, trace_requests

    come: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            come.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        serving_thread = threading.Thread(target=server.serve_forever)
        serving_thread.start()
        try:
            stop = trace_requests(f"http://127.0.0.1:{server.server_port}")
            with request("0af7651916cd43dd8448eb211c80319c"), tracing.operation("write"):
                pass
            stop()
        finally:
            server.shutdown()
            serving_thread.join()
    [(path, body)] = come
    told = ExportTraceServiceRequest.FromString(body)
    [span] = told.resource_spans[0].scope_spans[0].spans
    assert path == "/v1/traces" and span.name == "write"
    assert span.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"
    assert not tracing.is_tracing()


def test_trace_drawing_refuses_what_is_none(tmp_path: Path) -> None:
    strange = tmp_path / "strange"
    strange.write_text('{"a": 1}\n')
    with pytest.raises(BadRequest, match="line 1 is no span"):
        read_spans([strange])
    with pytest.raises(BadRequest, match="no span"):
        slowest([])
    with pytest.raises(BadRequest, match="'mine'"):
        drawn([], "mine")


_BUSY = '{"count": 2, "busy_ms": 500}'
_LINE = (
    '{{"name": "{name}", "context": {{"span_id": "0x{id}"}}, "parent_id": {parent}, '
    '"start_time": "2026-01-01T00:00:0{begin}.000000Z", "end_time": "2026-01-01T00:00:0{end}.000000Z", '
    '"attributes": {attributes}, "resource": {{"attributes": {{"service.name": "datanode", '
    '"service.instance.id": "dn-1"}}}}}}\n'
)


def test_trace_drawing_has_a_bar_for_each_span_below_its_parent(tmp_path: Path) -> None:
    file = tmp_path / "traces"
    ours, other = '{"request": "mine"}', '{"request": "other"}'
    file.write_text(
        _LINE.format(name="fsync", id="02", parent='"0x01"', begin=1, end=2, attributes=_BUSY)
        + _LINE.format(name="WriteChunk", id="01", parent="null", begin=0, end=2, attributes=ours)
        + _LINE.format(name="WriteChunk", id="03", parent="null", begin=0, end=1, attributes=other)
    )
    spans = read_spans([file])
    assert slowest(spans) == "mine"
    head, outer, inner = drawn(spans, "mine")
    assert head == "request mine: 2000.0 ms"
    assert outer.startswith("datanode dn-1: WriteChunk ") and outer.count("█") == 40
    assert inner.startswith("  fsync x2 ") and inner.count("█") == 20 and inner.endswith("500.0 ms")
    assert len(list(as_records(spans, "mine"))) == 2
