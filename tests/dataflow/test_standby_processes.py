"""Standbys on real processes that are killed and stopped: the output is that of a run without a failure."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import cloudpickle
import pyarrow as pa
import pytest
import support.dataflows
from support.dataflows import SAMPLES, Row
from support.long_runs import often
from support.waiting import PATIENCE_S, wait_until

from benchmarks.dataflows.seeded import SeededRun
from peacefs.dataflow.hosts import run_events
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.edge_run import EdgeRun, RunOptions
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.passive_standby import PassiveStandby
from peacefs.protocol.errors import InvalidQuery

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

# Nodes do not have the tests' modules, so functions of samples are pickled by value.
cloudpickle.register_pickle_by_value(support.dataflows)

_TECHNIQUES = [ActiveStandby, PassiveStandby]
_BATCHES = often(60, 120)


class Played:
    """A run whose source waits until `happen` has returned. `events` are the host's events."""

    def __init__(
        self,
        technique: Technique,
        network: OperatorClass,
        directory: Path,
        happen: Callable[[Played], None],
        *,
        nodes: int = 3,
        node_timeout_s: float = 100.0,
    ) -> None:
        self.rows: list[Row] = []
        self.events: list[tuple[float, run_events.RunEvent]] = []
        self._over = threading.Event()
        sample = SAMPLES[network]()
        given = sample.rows(1, batches=_BATCHES)
        self.host = LocalProcesses(nodes, DirectoryCheckpoints(directory), node_timeout_s=node_timeout_s)
        sources = {name: self._feed(batches) for name, batches in given.items()}
        options = RunOptions(observer=lambda at_s, event: self.events.append((at_s, event)))
        with self.host.start(sample.network, technique, sources, {"out": self._take}, options) as run:
            self.run: EdgeRun = run
            try:
                wait_until(lambda: len(self.rows) > 4, "first rows")
                happen(self)
            finally:
                self._over.set()
            run.wait(PATIENCE_S)

    def _feed(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for at, rows in enumerate(batches):
            if at == _BATCHES // 2:
                self._over.wait(PATIENCE_S)
            time.sleep(0.005)
            yield rows

    def _take(self, rows: pa.RecordBatch) -> None:
        self.rows += zip(*(column.to_pylist() for column in rows.columns), strict=True)

    def node_of(self, unit: str) -> str:
        node = self.run.place_of(unit)
        assert node is not None
        return node

    def kill(self, node: str) -> None:
        os.kill(self.host.pids()[node], signal.SIGKILL)


@cache
def expected_rows(network: OperatorClass) -> list[Row]:
    sample = SAMPLES[network]()
    rows = sample.rows(1, batches=_BATCHES)
    return SeededRun(sample.network, Amnesia(), rows, seed=1).run(until_s=1e6).rows("out")


def twice(played: Played) -> None:
    """Kill the primary, and later its successor, which has its own standby by then."""
    for _ in range(2):
        node = played.node_of("second")
        wait_until(lambda: played.run.survives_loss_of("second"), "a standby with a copy")
        played.kill(node)
        wait_until(lambda node=node: played.node_of("second") != node, "another node")  # type: ignore[misc]
        wait_until(lambda node=node: node in played.host.pids(), "the node again")  # type: ignore[misc]


@pytest.mark.parametrize("technique", _TECHNIQUES)
@pytest.mark.parametrize("network", [OperatorClass.CONVERGENT_CAPABLE, OperatorClass.DETERMINISTIC], ids=str)
def test_standby_process_takes_over_twice(
    technique: Callable[[], Technique], network: OperatorClass, tmp_path: Path
) -> None:
    played = Played(technique(), network, tmp_path, twice)
    assert played.rows == expected_rows(network)


@pytest.mark.parametrize("technique", _TECHNIQUES)
def test_standby_process_repeats_how_a_union_interleaved(
    technique: Callable[[], Technique], tmp_path: Path
) -> None:
    """Rows are numbered as they interleave: none is lost, and none is repeated."""
    played = Played(technique(), OperatorClass.ARBITRARY, tmp_path, lambda it: it.kill(it.node_of("first")))
    assert [row[0] for row in played.rows] == [f"row {at + 1}" for at in range(len(played.rows))]
    assert len({row[2] for row in played.rows}) == len(played.rows) == 2 * _BATCHES * 4


@pytest.mark.parametrize("technique", _TECHNIQUES)
def test_process_that_stood_still_is_fenced(technique: Callable[[], Technique], tmp_path: Path) -> None:
    """SIGSTOP for longer than a node may be silent, then SIGCONT: its later messages are refused."""

    def stop(played: Played) -> None:
        node = played.node_of("second")
        pid = played.host.pids()[node]
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until(lambda: played.node_of("second") != node, "the standby to take over")
        finally:
            os.kill(pid, signal.SIGCONT)

    played = Played(technique(), OperatorClass.CONVERGENT_CAPABLE, tmp_path, stop, node_timeout_s=3.0)
    assert played.rows == expected_rows(OperatorClass.CONVERGENT_CAPABLE)


def test_unit_without_a_standby_goes_on_and_says_so(tmp_path: Path) -> None:
    """One of two nodes dies, and is stopped whenever it restarts."""

    def kill(played: Played) -> None:
        node = next(name for name in played.host.pids() if name != played.node_of("second"))
        os.kill(played.host.pids()[node], signal.SIGKILL)
        missing = run_events.StandbyMissing("second")
        wait_until(lambda: missing in [event for _, event in played.events], "word that there is no standby")

    played = Played(PassiveStandby(), OperatorClass.DETERMINISTIC, tmp_path, kill, nodes=2)
    assert played.rows == expected_rows(OperatorClass.DETERMINISTIC)


def test_pair_on_one_process_is_refused(tmp_path: Path) -> None:
    sample = SAMPLES[OperatorClass.REPEATABLE]()
    host = LocalProcesses(1, DirectoryCheckpoints(tmp_path))
    with pytest.raises(InvalidQuery, match="give the host 2 or more"):
        host.start(sample.network, ActiveStandby(), {"in": []}, {"out": print})
