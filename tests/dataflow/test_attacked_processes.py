"""Nodes in real processes that are killed and stopped at random, one after another, while a query runs.

Under every technique the output equals that of a run without attacks. A seed has a few attacks. PEACEFS_SEEDS=n
plays n seeds, each with more attacks than the one before.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
import support.dataflows
from support.dataflows import SAMPLES, SCHEMA, Row, Sample, input_rows
from support.long_runs import often
from support.waiting import PATIENCE_S, wait_until

from benchmarks.dataflows.seeded import SeededRun
from peacefs.dataflow import Query
from peacefs.dataflow.hosts import run_events
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.edge_run import EdgeRun, RunOptions
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.hosts.ring_run import RingRun
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.cec import CEC
from peacefs.dataflow.techniques.flux import Flux
from peacefs.dataflow.techniques.passive_standby import PassiveStandby
from peacefs.dataflow.techniques.peer_ring import PeerRing
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.dataflow.techniques.upstream_backup import UpstreamBackup
from peacefs.dataflow.window_checkpoints.extent import Targets
from tests.simulation.seeds import seeds

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

# Nodes do not have the tests' modules, so functions of samples are pickled by value.
cloudpickle.register_pickle_by_value(support.dataflows)

#: Time until a silent node is considered dead, unless the kernel reports that it is running.
_SILENCE_S = 3.0
#: Neighbours on a ring do not ask the kernel.
_SILENCE_OF_NEIGHBOURS_S = 8.0
_UNITS = ("first", "second")
#: Other tests attack these nodes as well; attack them here only in longer runs.
_WITH_ATTACKS_OF_THEIR_OWN = [UpstreamBackup(precise=True), Flux()] if "PEACEFS_SEEDS" in os.environ else []
#: Number of batches that arrive during the attacks, repeated as needed, and of those that arrive afterwards.
_BATCHES, _AFTERWARDS = often(200, 400), 40


class Attacks:
    """A series of attacks under a seed: SIGKILL and SIGSTOP, each at least once, on random nodes."""

    def __init__(self, seed: int, host: LocalProcesses, lost: list[str]) -> None:
        self._chance = random.Random(seed)
        self._host, self._lost = host, lost
        kinds = [self._kill, self._stop]
        self._waiting = self._chance.sample(kinds, 2) + self._chance.choices(kinds, k=seed - 1)
        self.happened: list[str] = []

    def run(self, choose: Callable[[], list[str]], whole: Callable[[], object]) -> None:
        """Run the attacks, each when the query is `whole`. `choose` returns the nodes that may be hit."""
        for attack in self._waiting:
            wait_until(whole, f"a query that can lose a node, after {self.happened}")
            time.sleep(self._chance.uniform(0.0, 0.3))
            node = self._chance.choice(sorted(choose()))
            self.happened.append(f"{attack.__name__} {node}")
            attack(node)
        wait_until(whole, f"a whole query, after {self.happened}")

    def _kill(self, node: str) -> None:
        before = self._lost.count(node)
        os.kill(self._host.pids()[node], signal.SIGKILL)
        wait_until(lambda: self._lost.count(node) > before, f"the loss of {node}")

    def _stop(self, node: str) -> None:
        """Stop a node until the others consider it dead; then let it continue."""
        before = self._lost.count(node)
        pid = self._host.pids()[node]
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until(lambda: self._lost.count(node) > before, f"the loss of {node}")
        finally:
            os.kill(pid, signal.SIGCONT)


def _observer(lost: list[str]) -> RunOptions:
    def observe(_: float, event: run_events.RunEvent) -> None:
        if isinstance(event, run_events.NodeLost):
            lost.append(event.node)

    return RunOptions(observer=observe)


def _fed(made: Sequence[pa.RecordBatch], over: threading.Event) -> Iterator[pa.RecordBatch]:
    """Yield batches slowly until the attacks are over, then the rest."""
    for rows in made[:_BATCHES]:
        over.wait(0.03)
        yield rows
    over.wait(PATIENCE_S)
    yield from made[_BATCHES:]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _rows(batch: pa.RecordBatch) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _given(seed: int) -> tuple[Sample, list[pa.RecordBatch]]:
    sample = SAMPLES[OperatorClass.CONVERGENT_CAPABLE]()
    return sample, sample.rows(seed, batches=_BATCHES + _AFTERWARDS)["in"]


@cache
def _unharmed(seed: int) -> list[Row]:
    """Return the output of a run without a failure, which is the same for all techniques."""
    sample, made = _given(seed)
    return SeededRun(sample.network, Amnesia(), {"in": made}, seed=1).run(until_s=1e6).rows("out")


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize(
    "technique",
    [
        SGuard(interval_s=0.2),
        ActiveStandby(),
        PassiveStandby(),
        CEC(Targets(extent=1.5, replay_rows=50), period_s=0.05),
        *_WITH_ATTACKS_OF_THEIR_OWN,
    ],
    ids=lambda technique: technique.name,
)
def test_attacked_processes_put_out_what_unharmed_ones_do(technique: Technique, seed: int, tmp_path: Path) -> None:
    sample, made = _given(seed)
    observed: list[Row] = []
    lost: list[str] = []
    over = threading.Event()

    def take(batch: pa.RecordBatch) -> None:
        observed.extend(_rows(batch))

    def whole() -> bool:
        # A replacement process is started only after the loss of its predecessor was handled.
        if not all(map(_is_alive, host.pids().values())):
            return False
        if technique.replicas.paired and not all(map(run.survives_loss_of, _UNITS)):
            return False
        return all(run.place_of(unit) is not None for unit in _UNITS)

    def in_use() -> list[str]:
        places = [run.place_of(unit) for unit in _UNITS] + [run.standby_of(unit) for unit in _UNITS]
        return [place for place in places if place is not None]

    host = LocalProcesses(3, DirectoryCheckpoints(tmp_path), node_timeout_s=_SILENCE_S)
    with host.start(sample.network, technique, {"in": _fed(made, over)}, {"out": take}, _observer(lost)) as run:
        assert isinstance(run, EdgeRun)
        attacks = Attacks(seed, host, lost)
        try:
            wait_until(lambda: len(observed) > 4, "first rows")
            attacks.run(in_use, whole)
        finally:
            over.set()
        run.wait(PATIENCE_S)
    assert observed == _unharmed(seed), attacks.happened


def _counted() -> Network:
    def count(rows: pa.RecordBatch, state: Any) -> pa.RecordBatch:
        state.add_at(rows.column("key"), 1)
        return rows

    query = Query("ring")
    rows = query.source("in", SCHEMA, time="at")
    rows.process(count, state={"key": "string", "count": "int64"}, key="key").sink("out")
    return query.network()


@pytest.mark.parametrize("seed", seeds(1))
def test_attacked_processes_of_a_ring_count_each_tuple_once(seed: int, tmp_path: Path) -> None:
    """A killed or refused node restarts as a spare, which joins the ring in its place."""
    nodes = 4
    made = input_rows(seed, batches=_BATCHES + _AFTERWARDS, size=4)
    observed: Counter[Row] = Counter()
    lost: list[str] = []
    over = threading.Event()

    def take(batch: pa.RecordBatch) -> None:
        observed.update(_rows(batch))

    def whole() -> bool:
        """Return whether the ring is complete again, without any of the lost nodes."""
        return len(run.ring()) == nodes and not set(lost) & set(run.ring())

    host = LocalProcesses(nodes, DirectoryCheckpoints(tmp_path))
    technique = PeerRing(r=2, checkpoint_s=0.3, silence_s=_SILENCE_OF_NEIGHBOURS_S)
    with host.start(_counted(), technique, {"in": _fed(made, over)}, {"out": take}, _observer(lost)) as run:
        assert isinstance(run, RingRun)
        attacks = Attacks(seed, host, lost)
        try:
            wait_until(lambda: observed.total() > 4, "first rows")
            attacks.run(run.ring, whole)
        finally:
            over.set()
        run.wait(PATIENCE_S)
    assert observed == Counter(row for batch in made for row in _rows(batch)), attacks.happened
