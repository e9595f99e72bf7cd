"""Compare policies with many periodically checkpointing queries on real datanodes behind shaped links.

The cluster is that of `figure10`. Each query runs on its own host and begins a checkpoint once per period, at its
own offset. At a load of 1 the best schedule would need a whole period for one checkpoint of every query; above 1,
the queue keeps growing. The result is the duration of checkpoints in seconds of the paper's cluster, beside that
of the simulator with the rates measured in the emulation. A checkpoint is requested when it is due, even if the
previous one is not done. Needs root.

    python -m benchmarks staggered [--full]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from random import Random
from statistics import fmean, quantiles
from typing import Any

from peacefs.peace.policies.ledger import WriteSet
from peacefs.peace.simulator.scenarios import REPLICAS
from peacefs.peace.simulator.simulate import Arrival

from .emulation.contest import SetTimes
from .emulation.emulation import emulation
from .emulation.paper_cluster import Scale
from .emulation.turns import Turns
from .emulation.ways import BASELINE, WAYS, Way
from .report import show

Times = dict[tuple["Load", Way], list[SetTimes]]
Measure = Callable[[SetTimes], float]

_WAYS = [way for way in WAYS if way.writer_excluded]


@dataclass(frozen=True, slots=True)
class Load:
    """Number of queries, each with a checkpoint of `mb` in each of a number of periods."""

    queries: int
    mb: int
    periods: int
    load: float


@dataclass(frozen=True, slots=True)
class Taken:
    """Mean, 95th percentile and maximum of times, in seconds of the paper's cluster."""

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
            _Figure(emulated, _WAYS).draw(loads, seeds)


class _Figure(Turns[Load]):
    def draw(self, loads: Sequence[Load], seeds: Sequence[int]) -> None:
        runs = dict.fromkeys(loads, len(seeds))
        emulated = {each: list(chain(*times)) for each, times in self.emulate(runs, kept=False).items()}
        simulated = {
            (load, way): [times for seed in seeds for times in self.simulate(load, way, seed, seed)]
            for load, way in emulated
        }
        first = loads[0]
        show(
            "staggered",
            f"{first.queries} queries, {first.mb} MB each, {first.periods} checkpoints each, {len(seeds)} runs.\n"
            f"{self.conditions}.\n"
            "From request: from the moment at which a checkpoint is due until it is done",
            list(_rows(_from_request, emulated, simulated)),
        )
        show(
            "staggered_span",
            "Span: from a checkpoint's first grant until it is done",
            list(_rows(_span, emulated, simulated)),
        )

    def arrivals(self, load: Load, seed: int) -> list[Arrival]:
        rng = Random(seed)
        writers = rng.sample(self.hosts, load.queries)
        chunks = (self.scale.chunk_bytes,) * self.scale.chunks_of(load.mb)
        once = [Arrival(0.0, WriteSet(writer, writer, REPLICAS, chunks)) for writer in writers]
        period_s = self.scale.emulated_s(self.contest.bounds(once).makespan_s) / load.load
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
