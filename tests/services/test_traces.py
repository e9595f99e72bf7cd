"""Traces of processes: one write as a tree of spans, including the slow hop."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from support.slow_datanode import datanode_with_a_slow_disk
from support.waiting import wait_until
from typer.testing import CliRunner

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.client.requests import request, trace_requests
from peacefs.command import application
from peacefs.commands.trace_drawing import DrawnSpan, read_spans
from peacefs.runtime import tracing

pytest.importorskip("opentelemetry.sdk", reason="traces are an extra: install peacefs[tracing]")
pytestmark = pytest.mark.cluster
_ROOT = Path(__file__).parents[2]


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file into which all processes write their spans."""
    file = tmp_path / "traces.json"
    monkeypatch.setenv("PEACEFS_TRACES", str(file))
    return file


def _children(spans: list[DrawnSpan], parent: DrawnSpan) -> list[DrawnSpan]:
    return [span for span in spans if span.parent == parent.id]


def test_trace_shows_one_write_through_the_pipeline_and_which_hop_was_slow(tmp_path: Path, traces: Path) -> None:
    with (
        LocalCluster(tmp_path / "cluster", datanodes=2, port=0) as cluster,
        datanode_with_a_slow_disk(cluster, tmp_path / "slow", f"--traces={traces}") as slow,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        stop = trace_requests(str(traces))
        try:
            with request("one-slow-write"):
                files.write("/slow", os.urandom(4_000_000), replication=3)
            files.write("/another", b"x" * 1000, replication=3)
        finally:
            stop()

        def told() -> list[DrawnSpan]:
            return [span for span in read_spans([traces]) if span.request == "one-slow-write"]

        def is_told_of_everywhere() -> bool:
            whole = traces.exists() and traces.read_bytes().endswith(b"\n")
            found = [(span.service, span.name) for span in told()] if whole else []
            return found.count(("datanode", "WriteChunk")) == 3 and ("coordinator", "CompleteFile") in found

        # A span is exported after its children.
        wait_until(is_told_of_everywhere, "every service has exported its spans")
        spans = told()
    [root] = [span for span in spans if not span.parent]
    assert (root.service, root.name) == ("client", "write a file")
    assert {"CreateFile", "CompleteFile", "WriteChunk"} <= {span.name for span in _children(spans, root)}
    [call] = [span for span in spans if span.name == "CreateFile" and span.service == "client"]
    assert [(span.service, span.name) for span in _children(spans, call)] == [("coordinator", "CreateFile")]

    [completion] = [span for span in spans if span.name == "CompleteFile" and span.service == "coordinator"]
    assert [span.name for span in _children(spans, completion)] == ["commit"]

    hops = []
    above = root
    for _ in range(3):
        [above] = [span for span in _children(spans, above) if span.name == "WriteChunk"]
        hops.append(above)
    assert len({hop.instance for hop in hops}) == 3 and slow in {hop.instance for hop in hops}
    for place, hop in enumerate(hops):
        phases = {span.name for span in _children(spans, hop)}
        assert {"receive", "append", "fsync", "send"} <= phases
        assert ("forward" in phases) == (place < 2)
        assert hop.begin_s <= hop.end_s and hop.begin_s >= root.begin_s

    def waited_for_the_disk_ms(hop: DrawnSpan) -> float:
        return sum(span.attributes["busy_ms"] for span in _children(spans, hop) if span.name == "sleep")

    by_disk = sorted(hops, key=waited_for_the_disk_ms)
    assert by_disk[-1].instance == slow and waited_for_the_disk_ms(by_disk[-1]) > 1000
    assert waited_for_the_disk_ms(by_disk[-2]) < 1000

    drawn = CliRunner().invoke(application, ["trace", "--request", "one-slow-write", str(traces)])
    assert drawn.exit_code == 0
    assert drawn.output.startswith("request one-slow-write: ") and f"datanode {slow}: WriteChunk" in drawn.output
    slowest = CliRunner().invoke(application, ["trace", str(traces)])
    assert slowest.output == drawn.output
    assert not tracing.is_tracing(), "a command traces itself alone, not what its process does afterwards"


def test_trace_of_a_stock_client_goes_on_at_the_gateway(tmp_path: Path, traces: Path) -> None:
    with LocalCluster(tmp_path / "cluster", datanodes=1, port=0) as cluster, httpx.Client(timeout=180) as http:
        url = f"{cluster.http_address}/webhdfs/v1/stock?op=CREATE&replication=1"
        answer = http.put(url, headers={"X-Request-Id": "stock"})
        assert http.put(answer.headers["location"], content=b"x" * 1000).status_code == 201
    # They have ended, so they have exported all spans.
    spans = [span for span in read_spans([traces]) if span.request == "stock"]
    [create] = [span for span in spans if not span.parent]
    [gateway] = [span for span in _children(spans, create) if span.service == "datanode"]
    [hop] = [span for span in _children(spans, gateway) if span.name == "WriteChunk"]
    assert (create.service, create.name, hop.service) == ("coordinator", "CREATE", "datanode")
    assert {"append", "fsync"} <= {span.name for span in _children(spans, hop)}


def test_trace_costs_no_import_where_nothing_is_traced() -> None:
    program = (
        "import sys, peacefs.coordinator.process, peacefs.datanode.process, peacefs.client.filesystem, "
        "peacefs.client.requests, peacefs.command; "
        "sys.exit('opentelemetry.sdk' in sys.modules or 'opentelemetry.exporter' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=_ROOT, timeout=180).returncode == 0


def test_trace_without_its_packages_is_refused_in_one_line(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['opentelemetry.sdk'] = None; "
        "sys.argv = ['peacefs', 'datanode', '--dir', sys.argv[1], '--traces', 'x']; "
        "from peacefs.start import main; main()"
    )
    secret = tmp_path / "secret"
    secret.write_text("0" * 64 + "\n")
    secret.chmod(0o600)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=180,
        env=os.environ | {"PEACEFS_SECRET_FILE": str(secret)},
    )
    assert done.returncode == 1 and "install peacefs[tracing]" in done.stderr
    assert "Traceback" not in done.stderr
