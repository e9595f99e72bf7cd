"""Figure 6 of Streaming MapReduce on real processes: a ring balances its load, and grows.

A row costs each node 10 us of waiting, as in a function that calls a service. So a node processes 100,000 rows per
second whatever else the two cores do, and three nodes can be overloaded here. a: one of three nodes is overloaded,
and its neighbour takes half of its interval. b: the load grows beyond the nodes of the ring, and spare nodes join.
c: how long the neighbour in `a` needs, by the rate and the interval of checkpoints.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.report import show
from benchmarks.state_pictures import draw
from peacefs.dataflow import Query
from peacefs.dataflow.hosts.ring_node import ring_figures_s
from peacefs.dataflow.model.stream_type import TIME
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.ring_settings import RingArrangement, ring_queue_rows_high
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.ring.key_places import key_places
from peacefs.dataflow.ring.tokens import RING
from peacefs.dataflow.techniques.peer_ring import PeerRing

from .peer_ring_runs import PATIENT_S, SILENCE_S, RingUnderTest, with_ring

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SCHEMA = pa.schema([("word", pa.int64()), ("at", TIME)])
_WORDS = 50_000
_ROW_COST_S = 10e-6
_NODE_ROWS_PER_S = 1 / _ROW_COST_S
_BATCHES_PER_S = 20
_LOOK_S = 0.01
#: The share of its capacity that each of three nodes is given while the load is even.
_EVEN_SHARE = 0.3
_Load = Callable[[float], tuple[float, float]]


def measure(*, quick: bool = False) -> None:
    _balanced(even_s=3.0 if quick else 10.0, hot_s=12.0 if quick else 40.0)
    _grown(step_s=5.0 if quick else 10.0, steps=2 if quick else 4)
    _relief_by_interval(
        (2.0,) if quick else (1.0, 2.0, 5.0, 10.0), (1.0,) if quick else (0.9, 1.2), 1 if quick else 3
    )


# -- the query ---------------------------------------------------------------------------------------


def _count(rows: pa.RecordBatch, state: Any) -> pa.RecordBatch:
    state.add_at(rows.column("word"), 1)
    time.sleep(len(rows) * _ROW_COST_S)
    return rows.slice(0, 0)


def _network() -> Network:
    text = Query("words").source("text", _SCHEMA, time="at")
    return text.process(_count, state={"word": "int64", "count": "int64"}, key="word").sink("out").network()


def _rows(load: _Load, stop: threading.Event) -> Iterator[pa.RecordBatch]:
    """Return evenly distributed words, and words of the ring's first third, at the rates of a load."""
    chance = np.random.default_rng(6)
    words = np.arange(_WORDS)
    hot = words[key_places([pa.array(words)]) < RING // 3]
    begun_s = time.monotonic()
    for number in itertools.count(1):
        if stop.is_set():
            return
        even_rows, hot_rows = (int(rate / _BATCHES_PER_S) for rate in load(time.monotonic() - begun_s))
        given = np.concatenate([chance.integers(0, _WORDS, even_rows), chance.choice(hot, hot_rows)])
        yield pa.record_batch(
            [pa.array(given), pa.array(np.zeros(len(given), np.int64)).cast(TIME)], schema=_SCHEMA
        )
        stop.wait(max(0.0, begun_s + number / _BATCHES_PER_S - time.monotonic()))


# -- observations --------------------------------------------------------------------------------------


@dataclass
class _Seen:
    """Figures reported by nodes, and changes of the ring. Times are in seconds since the source began."""

    #: For each node: the time, the rows processed by then, and the rows waiting.
    nodes: dict[str, list[tuple[float, int, int]]] = field(default_factory=dict)
    rings: list[tuple[float, tuple[str, ...]]] = field(default_factory=list)
    #: Start and duration of each move on the ring.
    moves: list[tuple[float, float]] = field(default_factory=list)
    _moving: dict[str, float] = field(default_factory=dict)

    def look(self, now_s: float, ring: RingUnderTest) -> None:
        for node, each in ring.run.figures().items():
            line = self.nodes.setdefault(node, [])
            # Equal figures are new ones if nodes must have reported meanwhile.
            is_new = not line or (each.processed_rows, each.waiting_rows) != line[-1][1:]
            if is_new or now_s > line[-1][0] + 2 * ring_figures_s:
                line.append((now_s, each.processed_rows, each.waiting_rows))
        order = tuple(ring.run.ring())
        if not self.rings or order != self.rings[-1][1]:
            self.rings.append((now_s, order))
        for member in ring.run.members().values():
            if member.in_transition:
                self._moving.setdefault(member.name, now_s)
            elif member.name in self._moving:
                began_s = self._moving.pop(member.name)
                self.moves.append((began_s, now_s - began_s))

    def rates(self) -> dict[str, list[tuple[float, float]]]:
        """Return rows per second of each node, each over one second."""
        return {
            node: [
                (at_s, (done - before) / (at_s - before_s))
                for (before_s, before, _), (at_s, done, _) in zip(line, line[2:], strict=False)
            ]
            for node, line in self.nodes.items()
        }

    def queues(self) -> dict[str, list[tuple[float, float]]]:
        return {node: [(at_s, float(queued)) for at_s, _, queued in line] for node, line in self.nodes.items()}

    def first_overloaded_s(self) -> float:
        """Return when a node was first seen with enough waiting rows to count as overloaded."""
        over = [at_s for line in self.queues().values() for at_s, rows in line if rows >= ring_queue_rows_high]
        return min(over, default=float("nan"))


def _watch(
    nodes: int, technique: Technique, load: _Load, seconds: float, *, ends_with_move: bool = False
) -> _Seen:
    """Run a ring under a load for so long, or until a node has moved."""
    seen = _Seen()
    stop = threading.Event()

    def look(ring: RingUnderTest) -> None:
        begun_s = time.monotonic()
        while (now_s := time.monotonic() - begun_s) < seconds and not (ends_with_move and seen.moves):
            seen.look(now_s, ring)
            time.sleep(_LOOK_S)
        stop.set()
        ring.run.wait(PATIENT_S)

    with_ring(_network(), nodes, technique, _rows(load, stop), look)
    return seen


# -- a: balancing ------------------------------------------------------------------------------------------


def _balanced(*, even_s: float, hot_s: float) -> None:
    even = 3 * _EVEN_SHARE * _NODE_ROWS_PER_S

    def load(now_s: float) -> tuple[float, float]:
        return even, 0.0 if now_s < even_s else _NODE_ROWS_PER_S

    seen = _watch(3, PeerRing(r=1, silence_s=SILENCE_S), load, even_s + hot_s)
    end_s = even_s + hot_s
    found = [
        {
            "node": node,
            "rows/s, even load": _mean(rates, even_s / 2, even_s),
            "rows/s, first seconds of more": _mean(rates, even_s + 1, even_s + hot_s / 6),
            "rows/s, at the end": _mean(rates, end_s - hot_s / 4, end_s),
            "most that waited": max(rows for _, rows in seen.queues()[node]),
            "waiting at the end": seen.queues()[node][-1][1],
        }
        for node, rates in sorted(seen.rates().items())
    ]
    show(
        "peer_ring_balance", f"one of three nodes gets 130,000 rows/s from {even_s:g} s on (SMR, Figure 6a)", found
    )
    for at_s, took_s in seen.moves:
        print(f"a neighbour took the half of an interval at {at_s:.1f} s, within {took_s:.3f} s")
    draw("peer_ring_balance", _lines("SMR, Figure 6a", seen, [even_s]) if find_spec("matplotlib") else None)


def _mean(line: Sequence[tuple[float, float]], first_s: float, last_s: float) -> float:
    values = [value for at_s, value in line if first_s < at_s <= last_s]
    return statistics.mean(values) if values else float("nan")


# -- b: growing ----------------------------------------------------------------------------------------------


def _grown(*, step_s: float, steps: int) -> None:
    first, spares = 2, 2

    def rate_at(now_s: float) -> float:
        return _NODE_ROWS_PER_S * (1.2 + 0.6 * min(int(now_s / step_s), steps - 1))

    seen = _watch(
        first + spares,
        PeerRing(r=1, silence_s=SILENCE_S, arrangement=RingArrangement(spares=spares)),
        lambda now_s: (rate_at(now_s), 0.0),
        step_s * (steps + 1),
    )
    found = []
    for step in range(steps):
        begin_s, end_s = step * step_s, (step + 1 + (step == steps - 1)) * step_s
        rate = sum(_or_none(_mean(line, begin_s + step_s / 2, end_s)) for line in seen.rates().values())
        on_ring = [len(order) for at_s, order in seen.rings if at_s < end_s]
        found.append(
            {
                "from, s": begin_s,
                "rows/s that come": rate_at(begin_s),
                "rows/s, all nodes, later half": rate,
                "on the ring then": on_ring[-1] if on_ring else first,
            }
        )
    show("peer_ring_growth", "two nodes and two spares (SMR, Figure 6b)", found)
    sizes = [(at_s, order) for at_s, order in seen.rings if len(order) > first]
    if sizes:
        joins = ", ".join(f"{took_s:.2f}" for _, took_s in seen.moves)
        print(f"overloaded from {seen.first_overloaded_s():.1f} s on; a spare on the ring at {sizes[0][0]:.1f} s")
        print(f"joins took {joins} s (the paper, with the time to notice: 1.5 to 3 s)")
    marks = [step * step_s for step in range(1, steps)]
    draw("peer_ring_growth", _lines("SMR, Figure 6b", seen, marks) if find_spec("matplotlib") else None)


def _or_none(value: float) -> float:
    return 0.0 if value != value else value


# -- c: duration ---------------------------------------------------------------------------------------


def _relief_by_interval(intervals: Sequence[float], loads: Sequence[float], runs: int) -> None:
    found = []
    for more, interval_s in itertools.product(loads, intervals):
        even, hot = 3 * _EVEN_SHARE * _NODE_ROWS_PER_S, more * _NODE_ROWS_PER_S
        technique = PeerRing(r=1, silence_s=SILENCE_S, checkpoint_s=interval_s)
        took = []
        for _ in range(runs):
            seen = _watch(3, technique, partial(_steady, even, hot), 60.0, ends_with_move=True)
            took += [took_s for _, took_s in seen.moves[:1]]
        found.append(
            {
                "rows/s of the node": even / 3 + hot,
                "checkpoints, s": interval_s,
                "relieved within, s": statistics.median(took) if took else float("nan"),
                "worst": max(took, default=float("nan")),
                "runs": len(took),
            }
        )
    show("peer_ring_relief", "until a neighbour has the half of an interval (SMR, Figure 6c)", found)
    draw("peer_ring_relief", _by_interval(found) if find_spec("matplotlib") else None)


def _steady(even: float, hot: float, _now_s: float) -> tuple[float, float]:
    return even, hot


# -- pictures --------------------------------------------------------------------------------------------------


def _lines(title: str, seen: _Seen, marks: Sequence[float]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 5.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    _draw_each(above, seen.rates())
    _draw_each(below, seen.queues())
    below.axhline(ring_queue_rows_high, color="grey", linewidth=0.8, label="overloaded from here on")
    for axis in (above, below):
        for at_s in marks:
            axis.axvline(at_s, color="grey", linestyle=":", linewidth=0.8)
        for at_s, _ in seen.moves:
            axis.axvline(at_s, color="black", linestyle="--", linewidth=0.8)
    above.set_ylabel("rows a second")
    above.set_title(f"Load that grows, and moves on the ring (dashed) ({title})")
    above.legend(fontsize="small")
    below.set_ylabel("rows that wait")
    below.set_xlabel("seconds")
    below.legend(fontsize="small")
    return figure


def _draw_each(axis: Any, lines: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    for node, line in sorted(lines.items()):
        axis.plot([at_s for at_s, _ in line], [value for _, value in line], label=node, linewidth=1.2)


def _by_interval(found: Sequence[Mapping[str, Any]]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    axis = figure.subplots()
    for rate in sorted({each["rows/s of the node"] for each in found}):
        of_rate = [each for each in found if each["rows/s of the node"] == rate]
        intervals = [each["checkpoints, s"] for each in of_rate]
        times = [1000 * each["relieved within, s"] for each in of_rate]
        axis.plot(intervals, times, marker="o", label=f"{rate:,.0f} rows/s")
    axis.set_xlabel("interval of checkpoints, s")
    axis.set_ylabel("ms until a neighbour has the half")
    axis.set_ylim(bottom=0)
    axis.set_title("A neighbour takes over (SMR, Figure 6c)")
    axis.legend(fontsize="small")
    return figure
