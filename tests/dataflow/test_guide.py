"""The queries of docs/dataflow.md and docs/stream-logs.md run as they are written."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.dataflows import SCHEMA, input_rows
from support.pages import ROOT, Page
from support.waiting import PATIENCE_S, wait_until

from benchmarks.dataflows.seeded import SeededRun
from peacefs.dataflow import Query
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.logs.log_place import open_stream
from peacefs.dataflow.logs.log_reader import LogReader
from peacefs.dataflow.logs.stream_log import StreamLogs
from peacefs.dataflow.model.batches import Batch
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.sguard import SGuard


@pytest.mark.cluster
def test_guide_finds_the_address_that_attacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address with twelve failed logins within a minute is found; the one with a single failure is not."""
    written, *_ = Page(ROOT / "docs" / "dataflow.md").blocks("python")
    attacks: list[dict[str, Any]] = []
    names: dict[str, Any] = {"print": lambda batch: attacks.extend(batch.to_pylist())}
    monkeypatch.chdir(tmp_path)
    exec(compile(written, "docs/dataflow.md", "exec"), names)
    assert {attack["address"] for attack in attacks} == {"10.0.0.1"}
    assert max(attack["count"] for attack in attacks) == 12


def test_guide_finds_addresses_that_are_silent() -> None:
    """An address is reported five minutes after its last row, or at the end of the stream."""
    _, written, _ = Page(ROOT / "docs" / "dataflow.md").blocks("python")
    names: dict[str, Any] = {"Query": Query, "timedelta": timedelta}
    exec(compile(written, "docs/dataflow.md", "exec"), names)
    noon = datetime(2026, 1, 1, 12)
    minutes = [("a", 0), ("b", 1), ("a", 4), ("b", 9), ("a", 10)]
    rows = [{"address": who, "at": noon + timedelta(minutes=at), "ok": True} for who, at in minutes]
    kind = names["events"].type.schema
    given = {"events": pa.Table.from_pylist(rows, kind).to_batches(max_chunksize=2)}
    outcome = SeededRun(names["query"].network(), Amnesia(), given, seed=1).run()
    found = [row for batch in outcome.sinks["silent"] for row in batch.to_pylist()]
    expected = [("b", 6, 1), ("a", 9, 2), ("b", 14, 2), ("a", 15, 3)]
    assert found == [
        {"address": who, "at": noon + timedelta(minutes=at), "rows": count} for who, at, count in expected
    ]


@pytest.mark.cluster
def test_guide_copies_a_stream_log_through_a_dataflow(tmp_path: Path) -> None:
    """A second run finds its rows in the log, and adds none."""
    _, written = Page(ROOT / "docs" / "stream-logs.md").blocks("python")
    names: dict[str, Any] = {}
    exec(
        compile(written.replace("webhdfs://127.0.0.1:9870", tmp_path.as_uri()), "docs/stream-logs.md", "exec"),
        names,
    )
    rows = input_rows(1, batches=20, size=5)
    with open_stream(f"{tmp_path.as_uri()}/streams/events") as (store, stream):
        logs = StreamLogs(store)
        log = logs.open(stream, StreamType(SCHEMA, "at"))
        for batch in rows:
            log.append(Batch(log.last + 1, batch))
        logs.commit()
    for number in range(2):
        host = LocalProcesses(1, DirectoryCheckpoints(tmp_path / f"checkpoints-{number}"), node_timeout_s=100.0)
        names["run"](host, SGuard(interval_s=1))
        with open_stream(f"{tmp_path.as_uri()}/streams/copy") as (store, stream):
            found = [row for batch in LogReader(store, stream).read() for row in batch.rows.to_pylist()]
        assert found == [row for batch in rows for row in batch.to_pylist()]


@pytest.mark.long("starts a cluster and an agent")
def test_guide_program_for_the_cluster_runs_by_hand_until_it_is_stopped(tmp_path: Path) -> None:
    *_, written = Page(ROOT / "docs" / "dataflow.md").blocks("python")
    program, given = tmp_path / "large.py", tmp_path / "in"
    program.write_text(written)
    given.mkdir()
    rows = [{"user": "a", "at": datetime(2026, 1, 1, 12), "bytes": count} for count in (1000, 1001)]
    schema = pa.schema([("user", pa.string()), ("at", pa.timestamp("us")), ("bytes", pa.int64())])
    pq.write_table(pa.Table.from_pylist(rows, schema), given / "rows.parquet")
    running = subprocess.Popen([sys.executable, "-P", str(program), f"file://{tmp_path}"], cwd=tmp_path)
    try:
        wait_until(lambda: any((tmp_path / "out").glob("*.parquet")), "its sink has written a file")
        running.terminate()
        assert running.wait(PATIENCE_S) == 143
    finally:
        running.kill()
        running.wait()
    (file,) = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(file).to_pylist() == rows[1:]
    assert (tmp_path / "checkpoints" / "query.json").exists()
