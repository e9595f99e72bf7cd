"""Many queries with periodic checkpoints on real datanodes behind shaped links, policy against policy.

The cluster is that of `figure10`. Every query is on a host of its own and begins a checkpoint each period, at a
moment of its own. At a load of 1 the best of schedules would need all of a period for one checkpoint of every
query; at more, the queue grows for as long as it lasts. What is told is how long checkpoints take in seconds of
the paper's cluster, beside the simulator with the rates that were measured in the emulation. A checkpoint is asked
for when it is due, even if the query's last one is not done. Needs root.

    python -m benchmarks staggered [--full]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from statistics import fmean, quantiles
from typing import Any

from peacefs.peace.ledger import WriteSet
from peacefs.peace.scenarios import REPLICAS
from peacefs.peace.simulate import Arrival

from .emulation.contest import Contest, SetTimes
from .emulation.emulation import Emulation, emulation
from .emulation.paper_cluster import Scale
from .emulation.processor import ProcessorUse
from .emulation.ways import BASELINE, WAYS, Way
from .report import show

Times = dict[tuple["Load", Way], list[SetTimes]]
Measure = Callable[[SetTimes], float]

_WAYS = [way for way in WAYS if way.writer_excluded]


@dataclass(frozen=True, slots=True)
class Load:
    """So many queries, each with a checkpoint of `mb` in each of so many periods."""

    queries: int
    mb: int
    periods: int
    load: float


@dataclass(frozen=True, slots=True)
class Taken:
    """The mean, the 95th percentile and the longest of some times, in seconds of the paper's cluster."""

    mean_s: float
    p95_s: float
    slowest_s: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Taken:
        return cls(fmean(seconds), quantiles(seconds, n=20, method="inclusive")[-1], max(seconds))


def main(*, quick: bool = False, full: bool = False) -> None:
    loads, seeds = [Load(12, 128, 3, load) for load in (0.5, 0.85, 1.15)], range(1)
    if quick:
        loads = [Load(8, 128, 2, 0.85)]
    elif full:
        loads, seeds = [Load(16, 256, 6, load) for load in (0.5, 0.85, 1.15)], range(2)
    with emulation(Scale()) as emulated:
        if emulated is not None:
            _Figure(emulated).draw(loads, seeds)


class _Figure:
    def __init__(self, emulated: Emulation) -> None:
        self._conditions = emulated.conditions
        self._scale = emulated.scale
        self._hosts = [host.name for host in emulated.cluster.network.hosts]
        self._pids = emulated.cluster.pids
        self._contest = Contest(emulated)

    def draw(self, loads: Sequence[Load], seeds: Sequence[int]) -> None:
        emulated: Times = {(load, way): [] for load, way in product(loads, _WAYS)}
        use = ProcessorUse(self._pids)
        for number, (load, seed) in enumerate(product(loads, seeds)):
            turn = number % len(_WAYS)
            for way in [*_WAYS[turn:], *_WAYS[:turn]]:
                times = self._contest.emulate(way, self._arrivals(load, seed), kept=False)
                emulated[load, way] += times
        own, machine = use.shares()
        simulated = {
            (load, way): [
                times for seed in seeds for times in self._contest.simulate(way, self._arrivals(load, seed), seed)
            ]
            for load, way in product(loads, _WAYS)
        }
        first = loads[0]
        show(
            "staggered",
            f"{first.queries} queries, {first.mb} MB each, {first.periods} checkpoints each, {len(seeds)} runs.\n"
            f"{self._conditions}; seconds of the paper's cluster.\n"
            f"Of all cores the services and writers used {own:.0%}, everything on the machine {machine:.0%}.\n"
            "From request: from the moment at which a checkpoint is due until it is done",
            list(_rows(_from_request, emulated, simulated)),
        )
        show(
            "staggered_span",
            "Span: from a checkpoint's first grant until it is done",
            list(_rows(_span, emulated, simulated)),
        )

    def _arrivals(self, load: Load, seed: int) -> list[Arrival]:
        """The same checkpoints for every way."""
        rng = Random(seed)
        writers = rng.sample(self._hosts, load.queries)
        chunks = (self._scale.chunk_bytes,) * self._scale.chunks_of(load.mb)
        once = [Arrival(0.0, WriteSet(writer, writer, REPLICAS, chunks)) for writer in writers]
        period_s = self._scale.emulated_s(self._contest.bounds(once).makespan_s) / load.load
        return [
            Arrival(begin_s + period * period_s, WriteSet(f"{writer}-{period}", writer, REPLICAS, chunks))
            for writer in writers
            for begin_s in (rng.uniform(0.0, period_s),)
            for period in range(load.periods)
        ]


def _rows(measure: Measure, emulated: Times, simulated: Times) -> Iterator[dict[str, Any]]:
    for (load, way), times in emulated.items():
        base = Taken.of([measure(each) for each in emulated[load, BASELINE]])
        taken, model = (Taken.of([measure(each) for each in found]) for found in (times, simulated[load, way]))
        yield {
            "load": load.load,
            "way": way.name,
            "mean": taken.mean_s,
            "p95": taken.p95_s,
            "slowest": taken.slowest_s,
            f"mean / {BASELINE.name}": taken.mean_s / base.mean_s,
            f"slowest / {BASELINE.name}": taken.slowest_s / base.slowest_s,
            "sim. mean": model.mean_s,
            "sim. p95": model.p95_s,
            "sim. slowest": model.slowest_s,
        }


def _from_request(times: SetTimes) -> float:
    return times.from_request_s


def _span(times: SetTimes) -> float:
    return times.span_s
