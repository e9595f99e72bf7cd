"""The examples of docs/connectors.md run as they are written, and what they cannot run is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support.connector_rows import KIND
from support.kafka import KafkaBroker
from support.pages import ROOT, Page

from peacefs.dataflow.connectors import DeltaSink, FileSink, KafkaSink
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.query.query import Query
from peacefs.dataflow.techniques.peer_ring import PeerRing
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.protocol.errors import InvalidQuery, StartupError

pytestmark = [pytest.mark.cluster]

_PAGE = ROOT / "docs" / "connectors.md"


def _run(example: str, replaced: dict[str, str]) -> None:
    for old, new in replaced.items():
        assert old in example
        example = example.replace(old, new)
    names: dict[str, Any] = {}
    exec(compile(example, str(_PAGE), "exec"), names)


def test_guide_copies_failed_logins_between_topics(
    broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example follows its topic for ever; here it ends at the topic's end."""
    monkeypatch.chdir(tmp_path)
    broker.create("logins", 2)
    broker.create("failures", 2)
    logins = [
        {"address": f"10.0.0.{n % 4}", "at": f"2026-01-01T12:00:{n:02d}.000000", "ok": n % 3 == 0}
        for n in range(20)
    ]
    for n, login in enumerate(logins):
        broker.write("logins", [json.dumps(login).encode()], partition=n % 2)
    _run(
        Page(_PAGE).blocks("python")[0],
        {
            "localhost:9092": broker.servers,
            "import KafkaSink, KafkaSource\n": "import KafkaSink, KafkaSource\n"
            "from peacefs.dataflow.connectors.kafka_source import KafkaRead\n",
            'time="at")': 'time="at", read=KafkaRead(follow=False))',
        },
    )
    found = [json.loads(value) for value in broker.read_committed("failures")]
    assert [
        {**row, "at": row["at"].removesuffix(".000000")} for row in sorted(found, key=lambda row: row["at"])
    ] == [{**login, "at": login["at"].removesuffix(".000000")} for login in logins if not login["ok"]]


def test_guide_filters_a_directory_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    lines = [f"u{n % 3},2026-01-01T12:00:{n:02d},{n * 200}" for n in range(20)]
    (tmp_path / "in" / "rows.csv").write_text("\n".join(["user,at,bytes", *lines]) + "\n")
    _run(Page(_PAGE).blocks("python")[1], {"file:///data": tmp_path.as_uri()})
    read = f"read_parquet('{tmp_path}/out/**/*.parquet', hive_partitioning = true)"
    found = duckdb.sql(f"select user, bytes from {read} order by bytes").fetchall()
    assert found == [(f"u{n % 3}", n * 200) for n in range(20) if n * 200 > 1000]


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(StartupError, match=r"confluent_kafka is not installed: pip install 'peacefs\[kafka\]'"):
        KafkaSink("localhost:9092", "out")
    with pytest.raises(StartupError, match=r"deltalake is not installed: pip install 'peacefs\[delta\]'"):
        DeltaSink(str(tmp_path))


def test_sinks_that_commit_are_refused_where_rows_may_change(tmp_path: Path) -> None:
    query = Query("both")
    left, right = query.source("a", KIND), query.source("b", KIND)
    left.union(right).sink("out")
    host = LocalProcesses(1, DirectoryCheckpoints(tmp_path / "checkpoints"))
    sink = FileSink(str(tmp_path / "out"))
    with pytest.raises(InvalidQuery, match=r"query 'both' is arbitrary: .* sort"):
        host.start(query.network(), SGuard(interval_s=1), {"a": [], "b": []}, {"out": sink})
    assert not (tmp_path / "checkpoints").exists()
    ring = Query("ring")
    ring.source("a", KIND).process(
        lambda rows, state: rows, state={"user": "string", "n": "int64"}, key="user"
    ).sink("out")
    with pytest.raises(InvalidQuery, match=r"sink 'out' commits rows .* SGuard"):
        host.start(ring.network(), PeerRing(), {"a": []}, {"out": sink})
