"""A node is away for long: memory stays bounded, the source waits, and no row is lost or repeated."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from simulation.seeds import seeds
from support.dataflows import input_rows, repeatable
from support.waiting import wait_until

from benchmarks.dataflows.costs import VirtualTimes
from benchmarks.dataflows.seeded import Failure, Kill, Outcome, SeededRun
from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.techniques.sguard import SGuard

_SAMPLE = repeatable()
_ROWS = _SAMPLE.rows(1, batches=60)
_BATCH = max(batch.nbytes for batch in _ROWS["in"])
_BOUNDS = Bounds(credit_bytes=4 * _BATCH, buffer_bytes_max=10 * _BATCH, page_bytes=8192, state_bytes_max=1 << 24)


def run(seed: int, nodes: int, *failures: Failure, rows_every_s: float) -> Outcome:
    played = SeededRun(
        _SAMPLE.network,
        SGuard(interval_s=0.06),
        _ROWS,
        seed=seed,
        nodes=nodes,
        failures=failures,
        bounds=_BOUNDS,
        times=VirtualTimes(rows_every_s=rows_every_s, store_s=0.01),
    )
    return played.run(until_s=300.0)


def assert_is_bounded(outcome: Outcome) -> None:
    assert outcome.source_held_bytes_max < _BOUNDS.buffer_bytes_max + 2 * _BATCH
    assert outcome.held_bytes_max < _BOUNDS.buffer_bytes_max + 2 * _BATCH
    assert outcome.queued_bytes_max < _BOUNDS.credit_bytes + 2 * _BATCH
    assert outcome.state_bytes_max < 80 * _BOUNDS.page_bytes


@pytest.mark.parametrize("seed", seeds(3))
def test_memory_is_bounded_while_all_nodes_are_gone_for_a_minute(seed: int) -> None:
    """Nobody takes rows: the source fills its buffer and waits. It goes on when the nodes are back."""
    expected = run(seed, 2, rows_every_s=0.01)
    step = expected.steps // 3
    gone = [Kill(step, "node-1", back_after_s=60.0), Kill(step, "node-2", back_after_s=61.0)]
    observed = run(seed, 2, *gone, rows_every_s=0.01)
    assert observed.rows("out") == expected.rows("out")
    assert observed.seconds > 60
    assert observed.source_held_bytes_max >= _BOUNDS.buffer_bytes_max, "the source did not wait"
    assert sum(batch.nbytes for batch in _ROWS["in"]) > 3 * observed.source_held_bytes_max
    assert_is_bounded(observed)


@pytest.mark.parametrize("seed", seeds(3))
def test_memory_is_bounded_while_a_node_is_gone_for_a_minute(seed: int) -> None:
    """The other node runs both units meanwhile, and rows keep coming for more than a minute."""
    expected = run(seed, 2, rows_every_s=1.5)
    assert expected.seconds > 70
    for node in ("node-1", "node-2"):
        observed = run(seed, 2, Kill(expected.steps // 8, node, back_after_s=60.0), rows_every_s=1.5)
        assert observed.rows("out") == expected.rows("out")
        assert observed.seconds < expected.seconds + 30, "the source waited for the node"
        assert_is_bounded(observed)


class _Endless:
    """A source that has rows until it is told to end. It records how many were requested."""

    def __init__(self) -> None:
        (self.first,) = input_rows(1, batches=1, size=64)
        self.taken = 0
        self.last = 20_000

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while self.taken < self.last:
            # Keys and times repeat, but values do not.
            values = np.arange(self.taken * 64, self.taken * 64 + 64)
            self.taken += 1
            yield self.first.set_column(2, "value", pa.array(values))

    def waits(self) -> bool:
        """Return whether no rows were requested during a second."""
        before = self.taken
        time.sleep(1.0)
        return self.taken == before


@pytest.mark.cluster
@pytest.mark.parametrize("unit", ["first", "second"])
def test_memory_is_bounded_while_a_process_hangs(unit: str, tmp_path: Path) -> None:
    """The process is stopped but not yet considered dead. Data for it is bounded, and it continues later."""
    source = _Endless()
    batch = source.first.nbytes
    bounds = Bounds(credit_bytes=16 * batch, buffer_bytes_max=64 * batch)
    seen: list[int] = []

    def take(rows: pa.RecordBatch) -> None:
        seen.extend(rows.column("value").to_pylist())

    host = LocalProcesses(2, DirectoryCheckpoints(tmp_path), bounds=bounds, node_timeout_s=100.0)
    with host.start(_SAMPLE.network, SGuard(interval_s=0.1), {"in": source}, {"out": take}) as playing:
        wait_until(lambda: playing.checkpoint_of(unit) and seen, "rows and a checkpoint")
        node = playing.place_of(unit)
        assert node is not None
        pid = host.pids()[node]
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until(source.waits, "the source to wait")
            assert source.taken < source.last, "the source was at its end"
            delivered = len(seen) // 64
            # The buffers of the source and of each unit, the units' credit, and the data in transit.
            assert source.taken - delivered < 4 * (64 + 16)
            source.last = source.taken + 100
        finally:
            os.kill(pid, signal.SIGCONT)
        playing.wait(180.0)
    assert seen == list(range(64 * source.last))
