"""Flux on real processes that are killed and stopped: no effect on the rows, and pairs are restored."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
import support.dataflows
from support.dataflows import SCHEMA, Row, input_rows
from support.long_runs import often
from support.waiting import PATIENCE_S, wait_until

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.hosts import run_events
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.edge_run import EdgeRun, RunOptions
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.techniques.flux import Flux
from peacefs.protocol.errors import InvalidQuery

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

# Nodes do not have the tests' modules, so functions of queries are pickled by value.
cloudpickle.register_pickle_by_value(support.dataflows)

_BATCHES = often(30, 60)


def network() -> Network:
    """Count rows by key: a lost or repeated row changes all later counts of its key."""

    def count(rows: pa.RecordBatch, state: MutableMapping[Any, Any]) -> pa.RecordBatch:
        numbers = []
        for key in rows.column("key").to_pylist():
            state[key] = state.get(key, 0) + 1
            numbers.append(state[key])
        return rows.set_column(2, "value", pa.array(numbers, pa.int64()))

    query = Query("clicks")
    rows = query.source("in", SCHEMA, time="at").partition("value", parts=3, name="first", grain_rows=8)
    rows.filter(F.col("value") >= 0).partition("key", parts=3, name="second").process(count).sink("out")
    return query.network()


def expected_rows() -> list[Row]:
    counts: dict[str, int] = {}
    made = []
    for batch in input_rows(1, batches=_BATCHES, size=4):
        for row in batch.to_pylist():
            counts[row["key"]] = counts.get(row["key"], 0) + 1
            made.append((row["key"], row["at"], counts[row["key"]]))
    return made


class Played:
    """A run whose source waits until `happen` has returned."""

    def __init__(
        self, directory: Path, happen: Callable[[Played], None], *, node_timeout_s: float = 100.0
    ) -> None:
        self.rows: list[Row] = []
        self.events: list[run_events.RunEvent] = []
        self._over = threading.Event()
        self.host = LocalProcesses(4, DirectoryCheckpoints(directory), node_timeout_s=node_timeout_s)
        options = RunOptions(observer=lambda _, event: self.events.append(event))
        technique = Flux(standby_nodes=1)
        with self.host.start(network(), technique, {"in": self._feed()}, {"out": self._take}, options) as run:
            self.run: EdgeRun = run
            try:
                wait_until(lambda: len(self.rows) > 4, "first rows")
                happen(self)
            finally:
                self._over.set()
            run.wait(PATIENCE_S)

    def _feed(self) -> Iterator[pa.RecordBatch]:
        for at, rows in enumerate(input_rows(1, batches=_BATCHES, size=4)):
            if at == _BATCHES // 2:
                self._over.wait(PATIENCE_S)
            time.sleep(0.005)
            yield rows

    def _take(self, rows: pa.RecordBatch) -> None:
        self.rows += zip(*(column.to_pylist() for column in rows.columns), strict=True)

    def complete(self) -> list[str]:
        """Return the units whose pairs were restored, in that order."""
        return [event.unit for event in self.events if isinstance(event, run_events.PairComplete)]


#: Pairs with a half on the third node, in a chain of three nodes.
_ON_THIRD = {"out merge", "first[1]", "first[2]", "second[1]", "second[2]"}


def test_flux_processes_lose_nothing_when_a_node_is_killed(tmp_path: Path) -> None:
    """Five pairs lose a half with the third node. They are restored, those of the first stage first."""

    def kill(played: Played) -> None:
        os.kill(played.host.pids()["node-3"], signal.SIGKILL)
        wait_until(lambda: set(played.complete()) == _ON_THIRD, "whole pairs")

    played = Played(tmp_path, kill)
    assert played.rows == expected_rows()
    stages = [unit.partition("[")[0] for unit in played.complete()]
    assert stages == ["first", "first", "second", "second", "out merge"]


def test_flux_processes_refuse_a_node_that_hung(tmp_path: Path) -> None:
    """The controller has replaced the node as dead. When the node continues, its messages are ignored."""

    def stop(played: Played) -> None:
        pid = played.host.pids()["node-3"]
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until(lambda: set(played.complete()) == _ON_THIRD, "whole pairs")
        finally:
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.1)

    # Other nodes that are silent on a busy machine must be known to be running; otherwise a pair would be lost.
    assert Played(tmp_path, stop, node_timeout_s=3.0).rows == expected_rows()


def test_flux_processes_want_two_nodes_besides_those_that_stand_by(tmp_path: Path) -> None:
    host = LocalProcesses(2, DirectoryCheckpoints(tmp_path))
    with pytest.raises(InvalidQuery, match=r"the two of a pair on different nodes.*give the host 3 or more"):
        host.start(network(), Flux(standby_nodes=1), {"in": []}, {"out": print})
