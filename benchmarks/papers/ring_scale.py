"""Peer rings of many nodes in virtual time: duration and messages of recovery, by nodes and failures.

The cores are the real ones. Nodes that die at the same time are spread over the ring, so that nothing is lost.

    python -m benchmarks ring_scale [--runs N]
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from benchmarks.dataflows.dict_table import DictTable, places_of
from benchmarks.dataflows.seeded_ring import KillSet, RingFunctions, RingTimes, SeededRing
from benchmarks.report import show
from peacefs.dataflow.recovery.ring_settings import RingSettings
from peacefs.dataflow.ring.hashed_rows import HashedRows
from peacefs.dataflow.ring.keyed_table import KeyedTable

#: (nodes, simultaneous failures) of the runs.
CASES = ((12, 1), (12, 3), (12, 6), (100, 1), (100, 6), (300, 1), (300, 6), (1000, 1), (1000, 3))
_KEYS_PER_NODE = 4
_SETTLE_S = 1.2
_WATCH_S = 2.5


@dataclass(frozen=True)
class ScaleRow:
    """Means over the runs for one number of nodes and failures."""

    nodes: int
    failures: int
    r: int
    #: Seconds from the deaths until the last interval has an owner that has finished its replay.
    recovery_s: float
    #: Messages about failures, over all nodes and per failure, and copies of state for new neighbours.
    news_per_failure: float
    copies_per_failure: float
    lost: int


def main(*, quick: bool = False, runs: int = 1) -> None:
    rows = run_scale([case for case in CASES if not quick or case[0] <= 100], seeds=range(1, runs + 1))
    title = f"r = 1, nodes that die at once, not neighbours: means over {runs} run{'s' if runs != 1 else ''}"
    show("ring_scale", title, [_shown(row) for row in rows])


def _shown(row: ScaleRow) -> dict[str, Any]:
    return {
        "nodes": row.nodes,
        "failures": row.failures,
        "recovery, s": row.recovery_s,
        "news a failure": row.news_per_failure,
        "copies a failure": row.copies_per_failure,
        "lost": row.lost,
    }


def run_scale(
    cases: Iterable[tuple[int, int]] = CASES, *, r: int = 1, seeds: Sequence[int] = (1,)
) -> list[ScaleRow]:
    return [
        _mean(nodes, failures, r, [_run(nodes, failures, r, seed) for seed in seeds]) for nodes, failures in cases
    ]


def _mean(nodes: int, failures: int, r: int, runs: Sequence[tuple[float, int, int, int]]) -> ScaleRow:
    recovery_s, news, copies, lost = (sum(column) / len(runs) for column in zip(*runs, strict=True))
    return ScaleRow(nodes, failures, r, recovery_s, news / failures, copies / failures, round(lost * len(runs)))


def _run(nodes: int, failures: int, r: int, seed: int) -> tuple[float, int, int, int]:
    chance = random.Random(f"{nodes} {failures} {r} {seed}")
    settings = RingSettings(r=r, checkpoint_s=0.5, beat_s=0.2, silence_s=1.0, suspect_s=0.5, balances=False)
    words = list(range(_KEYS_PER_NODE * nodes))
    batches = {"mapper-1": [_batch(words) for _ in range(40)]}
    ring = SeededRing(
        settings,
        batches,
        RingFunctions(_count, DictTable),
        seed=seed,
        nodes=nodes,
        times=RingTimes(batch_every_s=0.1, tick_s=0.2),
    )
    order = ring.edge.view.ring
    first = chance.randrange(nodes)
    dead = tuple(order[(first + at * nodes // failures) % nodes] for at in range(failures))
    intervals = [arc.interval for name in dead for arc in ring.edge.view.arcs_of(name) if arc.owner == name]
    before, died_s, recovered_s = (0, 0), 0.0, 0.0
    begun = False

    def until() -> bool:
        nonlocal before, died_s, recovered_s, begun
        if not begun:
            if ring.now_s >= _SETTLE_S:
                begun, died_s = True, ring.now_s
                before = (ring.outcome.news, ring.outcome.copies)
                ring.happen(KillSet(0, dead))
            return False
        if not recovered_s and ring.outcome.steps % 16 == 0 and ring.owned(intervals):
            recovered_s = ring.now_s
        return bool(recovered_s) and ring.now_s > died_s + _WATCH_S

    outcome = ring.run(until=until)
    assert recovered_s, "the ring has not recovered"
    return recovered_s - died_s, outcome.news - before[0], outcome.copies - before[1], len(outcome.losses)


def _batch(words: list[int]) -> HashedRows:
    return HashedRows.sort(places_of(words), pa.record_batch({"word": pa.array(words, pa.int64())}))


def _count(mapper: str, table: KeyedTable, rows: HashedRows) -> Iterable[pa.RecordBatch]:
    assert isinstance(table, DictTable)
    for word in rows.rows.column("word").to_pylist():
        table.put(word, table.get(word, 0) + 1)
    return ()
