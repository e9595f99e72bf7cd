"""Operators count the rows that they drop as late; a model counts the same rows one by one."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from simulation.seeds import seeds
from support.long_runs import often

from benchmarks.dataflows.failures import Kill
from benchmarks.dataflows.seeded import SeededRun
from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.query.streams import Stream
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.sguard import SGuard

_SCHEMA = pa.schema([("key", pa.string()), ("at", pa.timestamp("us")), ("value", pa.int64())])
_SECOND = 1_000_000
Times = list[tuple[str, int]]


def window_model(rows: Times) -> int:
    """Model windows of 4 s every 2 s, 1 s late: a row is late if its last window is over."""
    latest, late = -(10**9), 0
    for _, at in rows:
        latest = max(latest, at)
        closed = (latest - 1 - 4) // 2 * 2 + 4
        late += at < closed
    return late


def sort_model(rows: Times) -> int:
    latest, late = -(10**9), 0
    for _, at in rows:
        latest = max(latest, at)
        late += at < latest - 2
    return late


def resample_model(rows: Times) -> int:
    latest: dict[str, int] = {}
    late = 0
    for key, at in rows:
        late += at < latest.get(key, at)
        latest[key] = max(at, latest.get(key, at))
    return late


_JUDGED: dict[str, tuple[Callable[[Stream], Stream], Callable[[Times], int]]] = {
    "aggregate-1": (lambda s: s.window("4s", every="2s", lateness="1s").aggregate(F.count()), window_model),
    "sort-1": (lambda s: s.sort("2s"), sort_model),
    "resample-1": (lambda s: s.key_by("key").resample("value", every="2s"), resample_model),
}


def times_of(chance: random.Random, count: int) -> Times:
    at, made = 0, []
    for _ in range(count):
        at += chance.choice([0, 0, 1, 2])
        made.append((chance.choice("ab"), max(at - chance.choice([0, 0, 0, 1, 3, 9]), 0)))
    return made


def batches_of(rows: Times, size: int) -> list[pa.RecordBatch]:
    keys, times = zip(*rows, strict=True)
    seconds = pa.array([at * _SECOND for at in times], pa.int64()).cast(pa.timestamp("us"))
    table = pa.table([pa.array(keys), seconds, pa.array(range(len(rows)))], schema=_SCHEMA)
    return [*table.to_batches(max_chunksize=size)]


def network_of(write: Callable[[Stream], Stream]) -> Network:
    query = Query("late")
    write(query.source("in", _SCHEMA, time="at")).sink("out")
    return query.network()


@pytest.mark.parametrize("seed", seeds(often(2, 30)))
@pytest.mark.parametrize("name", _JUDGED)
def test_late_rows_are_as_many_as_a_model_leaves_out(name: str, seed: int) -> None:
    write, model = _JUDGED[name]
    chance = random.Random(seed)
    rows = times_of(chance, 60)
    given = {"in": batches_of(rows, chance.choice([1, 7, 60]))}
    expected = model(rows)
    assert expected > 0
    calm = SeededRun(network_of(write), Amnesia(), given, seed=seed).run()
    assert calm.late.by_operator() == {name: expected}
    technique = SGuard(interval_s=0.1)
    failed = SeededRun(network_of(write), technique, given, seed=seed, failures=[Kill(40, "node-1")]).run()
    assert failed.rows("out") == calm.rows("out")
    assert failed.late.by_operator() == {name: expected}


def test_join_counts_rows_that_come_after_later_ones_of_their_stream() -> None:
    rows = {"left": [("a", 5), ("a", 3), ("a", 5)], "right": [("a", 1), ("a", 6), ("a", 2), ("a", 0)]}
    query = Query("late")
    left, right = (query.source(name, _SCHEMA, time="at") for name in rows)
    right = right.select("key", "at", other=F.col("value"))
    left.key_by("key").join(right.key_by("key"), within="9s").sink("out")
    given = {name: batches_of(times, 2) for name, times in rows.items()}
    outcome = SeededRun(query.network(), Amnesia(), given, seed=1).run()
    assert outcome.late.by_operator() == {"join-1": 1 + 2}


@pytest.mark.cluster
def test_running_query_tells_of_late_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = times_of(random.Random(3), 60)
    write, model = _JUDGED["aggregate-1"]
    made: list[Any] = []
    host = LocalProcesses(nodes=1, checkpoints=DirectoryCheckpoints(tmp_path))
    with (
        caplog.at_level(logging.WARNING, "peacefs.dataflow"),
        host.start(
            network_of(write), SGuard(interval_s=1.0), {"in": batches_of(rows, 9)}, {"out": made.append}
        ) as run,
    ):
        run.wait(60)
        assert run.late_rows() == {"aggregate-1": model(rows)}
    assert [record.message for record in caplog.records] == ["query 'late': 'aggregate-1' has left out late rows"]
