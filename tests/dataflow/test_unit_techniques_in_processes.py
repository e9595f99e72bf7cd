"""Units with different techniques on real processes, each of which is killed: every row comes once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from oracles.row_windows import sums_of_windows
from support.dataflows import SCHEMA, input_rows, passed
from support.long_runs import often
from support.waiting import PATIENCE_S, wait_until

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.edge_run import EdgeRun, RunOptions
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.model.operator_class import Recovery
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.cec import CEC
from peacefs.dataflow.techniques.flux import Flux
from peacefs.dataflow.techniques.sguard import SGuard

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

_BATCHES = often(60, 200)


def _network() -> Network:
    query = Query("hybrid")
    first = passed(query.source("in", SCHEMA, time="at").unit("first", technique=Flux()))
    windows = first.unit("second", technique=CEC()).key_by("key").count_window(3, every=2)
    sums = windows.aggregate(F.sum("value"))
    third = passed(sums.unit("third", technique=ActiveStandby()))
    return passed(third.unit("fourth")).sink("out").network()


def _is_whole(run: EdgeRun) -> bool:
    return all(run.survives_loss_of(unit) for unit in ("first", "third"))


def test_node_of_each_unit_is_killed_and_every_row_comes_once(tmp_path: Path) -> None:
    rows = input_rows(1, batches=_BATCHES, size=4)
    found: list[tuple[object, ...]] = []
    over = threading.Event()

    def feed() -> Iterator[pa.RecordBatch]:
        for at, batch in enumerate(rows):
            if at == _BATCHES // 2:
                over.wait(PATIENCE_S)
            time.sleep(0.005)
            yield batch

    def take(batch: pa.RecordBatch) -> None:
        found.extend(zip(*(column.to_pylist() for column in batch.columns), strict=True))

    host = LocalProcesses(4, DirectoryCheckpoints(tmp_path), node_timeout_s=100.0)
    options = RunOptions(guarantee=Recovery.PRECISE)
    with host.start(_network(), SGuard(interval_s=0.1), {"in": feed()}, {"out": take}, options) as run:
        assert isinstance(run, EdgeRun)
        try:
            wait_until(lambda: len(found) > 4, "first rows")
            for unit in ("second", "first", "third", "fourth"):
                wait_until(lambda: _is_whole(run), "standbys of all units")
                node = run.place_of(unit)
                assert node is not None
                process = host.pids()[node]
                os.kill(process, signal.SIGKILL)
                wait_until(lambda p=process, n=node: host.pids()[n] != p, "the node again")  # type: ignore[misc]
        finally:
            over.set()
        run.wait(PATIENCE_S)
    sums: dict[object, list[object]] = defaultdict(list)
    for key, _, total in found:
        sums[key].append(total)
    given = ((row["key"], row["value"]) for batch in rows for row in batch.to_pylist())
    assert sums == sums_of_windows(given, 3, 2)
