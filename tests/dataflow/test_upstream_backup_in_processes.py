"""Upstream backup of nodes that are killed and stopped at random: precise without any storage."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from support.dataflows import SAMPLES, Row
from support.long_runs import often
from support.waiting import PATIENCE_S, wait_until

from benchmarks.dataflows.seeded import SeededRun
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.edge_run import RunOptions
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.hosts.run_events import RecoveryMeasured, RunEvent
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.upstream_backup import UpstreamBackup
from peacefs.spark_connector.dataflow_demo import query as demo
from peacefs.spark_connector.demo.auth_log import YearAssumption

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

_ORDEAL_S = float(os.environ.get("PEACEFS_DATAFLOW_ORDEAL_S", often(1, 5)))
_ORDEAL_SEED = int(os.environ.get("PEACEFS_DATAFLOW_ORDEAL_SEED", "1"))
_EVERY_S = 0.02
#: Time until a silent node is considered dead, unless the kernel reports that it is running.
_SILENCE_S = 3.0
_PRECISE = RunOptions(guarantee=Recovery.PRECISE)


def rows_of(batches: list[pa.RecordBatch]) -> list[Row]:
    return [row for rows in batches for row in zip(*(column.to_pylist() for column in rows.columns), strict=True)]


def _stop(pid: int) -> None:
    """Stop a node for longer than it may be silent; then let it continue."""
    try:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(_SILENCE_S * 1.4)
    finally:
        os.kill(pid, signal.SIGCONT)


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def test_upstream_backup_survives_whatever_dies_at_random(tmp_path: Path) -> None:
    """One node, or two at the same time. All state is in memory only."""
    chance = random.Random(_ORDEAL_SEED)
    sample = SAMPLES[OperatorClass.CONVERGENT_CAPABLE]()
    made = sample.rows(1, batches=int(_ORDEAL_S / _EVERY_S) + 150)["in"]
    observed: list[pa.RecordBatch] = []
    over = threading.Event()

    def feed() -> Iterator[pa.RecordBatch]:
        for rows in made[:-50]:
            time.sleep(_EVERY_S)
            yield rows
        over.wait(PATIENCE_S)
        yield from made[-50:]

    host = LocalProcesses(3, DirectoryCheckpoints(tmp_path), node_timeout_s=_SILENCE_S)
    technique = UpstreamBackup(precise=True)
    happened = []
    with host.start(sample.network, technique, {"in": feed()}, {"out": observed.append}, _PRECISE) as run:
        wait_until(lambda: observed, "first rows")
        ends_s = time.monotonic() + _ORDEAL_S
        waiting = chance.sample([(_kill,), (_stop,), (_kill, _kill)], 3)
        while waiting or time.monotonic() < ends_s:
            events = waiting.pop() if waiting else chance.choice([(_kill,), (_kill, _kill)])
            for event, pid in zip(events, chance.sample(sorted(host.pids().values()), len(events)), strict=True):
                happened.append(event.__name__)
                # A node that has just died is being replaced.
                with suppress(ProcessLookupError):
                    event(pid)
            time.sleep(chance.uniform(0.2, 1.5))
        over.set()
        run.wait(PATIENCE_S)
    expected = SeededRun(sample.network, Amnesia(), {"in": made}, seed=1).run(until_s=1e6).rows("out")
    assert rows_of(observed) == expected, happened


def test_upstream_backup_of_the_demos_query_is_exact(tmp_path: Path) -> None:
    """Failed logins per hour; the node with the windows is killed while an hour's window is open."""
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    lines = [
        f"{(begun + timedelta(minutes=minute)).isoformat(timespec='microseconds')} host sshd[7]: "
        f"Failed password for root from 10.0.0.{minute % 7} port 22 ssh2"
        for minute in range(600)
    ]
    arrived = pa.array(range(len(lines)), pa.int64()).cast(demo.LINES.field("arrived").type)
    table = pa.RecordBatch.from_arrays([pa.array(lines), arrived], schema=demo.LINES)
    batches = [table.slice(first, 10) for first in range(0, len(lines), 10)]
    network = demo.network(YearAssumption(2026, 1), 3600, 600, 0)
    observed: list[pa.RecordBatch] = []
    recovered = threading.Event()

    def feed() -> Iterator[pa.RecordBatch]:
        yield from batches[:30]
        wait_until(lambda: observed, "the first windows")
        node = run.place_of(demo.WINDOWS)
        assert node is not None
        _kill(host.pids()[node])
        yield from batches[30:]
        recovered.wait(PATIENCE_S)

    def watch(_: float, event: RunEvent) -> None:
        if isinstance(event, RecoveryMeasured) and event.unit == demo.WINDOWS:
            recovered.set()

    host = LocalProcesses(3, DirectoryCheckpoints(tmp_path), node_timeout_s=PATIENCE_S)
    options = RunOptions(observer=watch, guarantee=Recovery.PRECISE)
    with host.start(
        network, UpstreamBackup(precise=True), {demo.SOURCE: feed()}, {demo.SINK: observed.append}, options
    ) as run:
        run.wait(PATIENCE_S)
    assert recovered.is_set()
    expected = SeededRun(network, Amnesia(), {demo.SOURCE: batches}, seed=1).run(until_s=1e6).rows(demo.SINK)
    assert len(expected) > 100
    assert rows_of(observed) == expected
