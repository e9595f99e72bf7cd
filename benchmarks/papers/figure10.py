"""The paper's Figure 10 on real datanodes behind shaped links: all policies, bounds, and the paper's numbers.

17 datanodes in racks of 8 and 9, each a process in its own network namespace, with a disk as slow as the paper's.
Writers in the datanodes' namespaces all begin to write sets of chunks, r = 3, at the same moment. The policies
take turns in one run, with the same writers. Rates and chunks are scaled down; times are in seconds of the paper's
cluster. The simulator gets the rates that were measured in the emulation; the last table compares both. Bounds use
the configured rates of links and disks. Needs root.

    python -m benchmarks figure10 [--full | --cells 8x128,16x512]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product, starmap
from random import Random
from statistics import fmean
from typing import Any

from benchmarks.emulation.contest import SetTimes
from benchmarks.emulation.emulation import emulation
from benchmarks.emulation.paper_cluster import Scale
from benchmarks.emulation.turns import Turns
from benchmarks.emulation.ways import BASELINE, WAYS, Way
from benchmarks.report import show
from peacefs.peace.policies.ledger import WriteSet
from peacefs.peace.simulator.scenarios import REPLICAS
from peacefs.peace.simulator.simulate import Arrival

_HOSTS = 17

#: Emulation and simulation should agree on the ratio of two policies, within a quarter.
_AGREE = 1.25

#: Placement is random. The simulator repeats each run so often, and small sets have more runs. Otherwise chance
#: would determine the ratios: 8 sets of two chunks vary by a sixth.
_SIMULATED_PER_RUN = 10
_RUNS = {128: 12, 256: 6, 512: 4}

#: The paper's figures for 16 writers and 512 MB (section 1): the mean time of a checkpoint, and the time of all.
_PAPER_SAYS = {BASELINE.name: ("45", "55"), "paper": ("< 20", "75")}


@dataclass(frozen=True, slots=True)
class Cell:
    """A group of bars in Figure 10."""

    writers: int
    mb: int

    @classmethod
    def parse(cls, text: str) -> Cell:
        """Parse writers and MB, such as `16x256`. Raises SystemExit."""
        writers, _x, mb = text.partition("x")
        if not (writers.isdecimal() and 0 < int(writers) <= _HOSTS and mb in map(str, _RUNS)):
            raise SystemExit(
                f"{text!r} is no cell: 1 to {_HOSTS} writers of {', '.join(map(str, _RUNS))} MB, as 16x256"
            )
        return cls(int(writers), int(mb))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The times of one run in seconds of the paper's cluster: two means over sets, and the end of the last set."""

    from_request_s: float
    span_s: float
    makespan_s: float

    @classmethod
    def of(cls, times: Sequence[SetTimes]) -> Outcome:
        return cls(
            fmean(each.from_request_s for each in times),
            fmean(each.span_s for each in times),
            max(each.done_s for each in times),
        )

    @classmethod
    def mean(cls, outcomes: Sequence[Outcome]) -> Outcome:
        return cls(
            fmean(each.from_request_s for each in outcomes),
            fmean(each.span_s for each in outcomes),
            fmean(each.makespan_s for each in outcomes),
        )

    def over(self, other: Outcome) -> Outcome:
        return Outcome(
            self.from_request_s / other.from_request_s,
            self.span_s / other.span_s,
            self.makespan_s / other.makespan_s,
        )


def main(*, quick: bool = False, full: bool = False, cells: str | None = None) -> None:
    runs = {Cell(16, 256): 2}
    if quick:
        runs = {Cell(8, 128): 1}
    elif full or cells:
        chosen = map(Cell.parse, cells.split(",")) if cells else starmap(Cell, product((8, 16), _RUNS))
        runs = {cell: _RUNS[cell.mb] for cell in chosen}
    with emulation(Scale()) as emulated:
        if emulated is not None:
            _Figure(emulated, WAYS).draw(runs)


class _Figure(Turns[Cell]):
    def draw(self, runs: Mapping[Cell, int]) -> None:
        emulated = self.emulate(runs)
        rows = [
            self._row(cell, way, [Outcome.of(times) for times in emulated[cell, way]])
            for cell in runs
            for way in WAYS
        ]
        show("figure10", f"Means; {self.conditions}", rows)
        show(
            "figure10_agreement",
            f"Beside {BASELINE.name}, emulated / simulated with measured rates (from request, span, makespan). "
            f"They agree within {_AGREE:g}",
            list(self._agreement(list(runs), rows)),
        )

    def _row(self, cell: Cell, way: Way, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        emulated, seeds = Outcome.mean(outcomes), range(len(outcomes))
        simulated = Outcome.mean(
            [
                Outcome.of(self.simulate(cell, way, seed, _SIMULATED_PER_RUN * seed + draw))
                for seed in seeds
                for draw in range(_SIMULATED_PER_RUN)
            ]
        )
        least = [self.contest.bounds(self.arrivals(cell, seed)) for seed in seeds]
        mean, last = _PAPER_SAYS.get(way.name, ("-", "-")) if cell == Cell(16, 512) else ("-", "-")
        return {
            "writers": cell.writers,
            "MB": cell.mb,
            "way": way.name,
            "runs": len(outcomes),
            "from request": emulated.from_request_s,
            "span": emulated.span_s,
            "makespan": emulated.makespan_s,
            "bound": fmean(each.mean_s for each in least),
            "bound, all": fmean(each.makespan_s for each in least),
            "simulated": simulated.from_request_s,
            "sim. span": simulated.span_s,
            "sim. makespan": simulated.makespan_s,
            "paper": mean,
            "paper, all": last,
        }

    def arrivals(self, load: Cell, seed: int) -> list[Arrival]:
        chunks = (self.scale.chunk_bytes,) * self.scale.chunks_of(load.mb)
        return [
            Arrival(0.0, WriteSet(writer, writer, REPLICAS, chunks))
            for writer in Random(seed).sample(self.hosts, load.writers)
        ]

    def _agreement(self, cells: Sequence[Cell], rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        found = {(row["writers"], row["MB"], row["way"]): row for row in rows}
        for cell, way in product(cells, WAYS):
            row, base = (found[cell.writers, cell.mb, name] for name in (way.name, BASELINE.name))
            emulated, simulated = _emulated(row).over(_emulated(base)), _simulated(row).over(_simulated(base))
            off = emulated.over(simulated)
            worst = max(max(each, 1 / each) for each in (off.from_request_s, off.span_s, off.makespan_s))
            yield {
                "writers": cell.writers,
                "MB": cell.mb,
                "way": way.name,
                "emulated": _three(emulated),
                "simulated": _three(simulated),
                "emulated / simulated": _three(off),
                "agree": "yes" if worst <= _AGREE else "no",
            }


def _emulated(row: dict[str, Any]) -> Outcome:
    return Outcome(row["from request"], row["span"], row["makespan"])


def _simulated(row: dict[str, Any]) -> Outcome:
    return Outcome(row["simulated"], row["sim. span"], row["sim. makespan"])


def _three(outcome: Outcome) -> str:
    return f"{outcome.from_request_s:.2f}  {outcome.span_s:.2f}  {outcome.makespan_s:.2f}"
