"""Bytes on the links of a query, counted by kind in each process, if that is requested."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from support.dataflows import SAMPLES
from support.waiting import PATIENCE_S, wait_until

from benchmarks.dataflows.costs import Traffic
from benchmarks.dataflows.link_traffic import LinkTraffic
from peacefs.dataflow.core.messages import Ack, CopyHeld
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.edge_run import RunOptions
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.model.batches import Position
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.passive_standby import PassiveStandby

_BATCHES = 60


def test_traffic_is_counted_by_kind_and_subject(tmp_path: Path) -> None:
    """There are more subjects than the file has space for at first. A restarted process gets a new file."""
    traffic = LinkTraffic(tmp_path / "counts")
    count = traffic.counter("node-1")
    for number in range(200):
        for _ in range(3):
            count(Ack(f"stream {number}", "unit", 1, RowStage.SAFE, Position(0, 1)), 10)
    count(CopyHeld("unit", 1, 1, 1), 7)
    traffic.counter("node-2")(CopyHeld("unit", 1, 1, 2), 8)
    expected = {(Traffic.ACKNOWLEDGEMENT, f"stream {number}"): 30 for number in range(200)}
    assert traffic.total() == {**expected, (Traffic.REPLICATION, "unit"): 15}


_COPIES = (Traffic.REPLICATION, "second")


def played(technique: Technique, directory: Path, *, kill: bool = False) -> Counter[tuple[Traffic, str]]:
    """Return the traffic of a run. With `kill`, the second unit's process is killed in the middle.

    The kill waits until a standby has received something.
    """
    sample = SAMPLES[OperatorClass.CONVERGENT_CAPABLE]()
    traffic, rows, over = LinkTraffic(directory / "counts"), 0, threading.Event()

    def feed() -> Iterator[pa.RecordBatch]:
        made = sample.rows(1, batches=_BATCHES)["in"]
        yield from made[: _BATCHES // 2]
        over.wait(PATIENCE_S)
        yield from made[_BATCHES // 2 :]

    def take(batch: pa.RecordBatch) -> None:
        nonlocal rows
        rows += batch.num_rows

    host = LocalProcesses(2, DirectoryCheckpoints(directory / "checkpoints"), node_timeout_s=100.0)
    options = RunOptions(traffic=traffic)
    with host.start(sample.network, technique, {"in": feed()}, {"out": take}, options) as run:
        try:
            wait_until(lambda: rows > 4, "first rows")
            if technique.replicas.paired:
                wait_until(lambda: traffic.total()[_COPIES] > 0, "messages to the standby")
            if kill:
                before, node = traffic.total(), run.place_of("second")
                os.kill(host.pids()[node or ""], signal.SIGKILL)
                wait_until(lambda: run.place_of("second") not in (node, None), "another node")
                assert all(traffic.total()[flow] >= size for flow, size in before.items())
        finally:
            over.set()
        run.wait(PATIENCE_S)
    return traffic.total()


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_traffic_of_standbys_is_that_of_amnesia_and_theirs(tmp_path: Path) -> None:
    amnesia = played(Amnesia(), tmp_path / "amnesia")
    active = played(ActiveStandby(), tmp_path / "active")
    passive = played(PassiveStandby(), tmp_path / "passive", kill=True)
    # Both replicas of a pair receive the rows of a source.
    source = Traffic.DATA, "in"
    assert active[source] > 1.5 * amnesia[source] > 0
    assert _COPIES not in amnesia
    assert passive[_COPIES] > 0 and active[_COPIES] > 0
