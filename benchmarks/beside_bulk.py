"""Periodic checkpoints on real datanodes behind shaped links, with `express` and `timely` in turn.

The cluster is that of `figure10`. Three loads:

- *bulk beside*: checkpoints of one chunk from all hosts by turns, while eight bulk writers write without a pause;
- *aligned*: all queries checkpoint at the same moment, as Spark's triggers do;
- *planned*: the same checkpoints with phases that were planned.

Stretch is the duration of a checkpoint, from when it is due until it is written, divided by the median duration of
the same checkpoint alone. Both policies get the same load in one run. Needs root.

    python -m benchmarks beside_bulk
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from statistics import fmean, median
from typing import Any, Final

from peacefs.peace.phases import DISKS, Phased, plan_phases
from peacefs.peace.policies.express import ExpressPolicy
from peacefs.peace.policies.ledger import WriteSet
from peacefs.peace.policies.timely import TimelyPolicy
from peacefs.peace.simulator.scenarios import REPLICAS
from peacefs.peace.simulator.simulate import Arrival
from peacefs.protocol.values.write_classes import WriteClass

from .emulation.contest import SetTimes
from .emulation.emulation import emulation
from .emulation.paper_cluster import Scale
from .emulation.turns import Turns
from .emulation.ways import Way
from .report import show

_WAYS: Final = (
    Way("express", "express", True, ExpressPolicy),
    Way("timely", "timely", True, TimelyPolicy),
)

_BULK_WRITERS: Final = 8
#: Chunks of each bulk writer: enough to write without a pause while there are checkpoints.
_BULK_CHUNKS: Final = 24
_CHECKPOINTS: Final = 40
_QUERIES: Final = 12
_PERIODS: Final = 3
#: In seconds of the emulated cluster.
_PERIOD_S: Final = 5.0
_GAP_S: Final = 0.4


def main(*, quick: bool = False) -> None:
    with emulation(Scale()) as emulated:
        if emulated is not None:
            _Beside(emulated, _WAYS).draw(["bulk beside"] if quick else ["bulk beside", "aligned", "planned"])


class _Beside(Turns[str]):
    def draw(self, loads: Sequence[str]) -> None:
        found = self.emulate(dict.fromkeys(["alone", *loads], 1), kept=False)
        show("beside_bulk", f"{self.conditions}", list(self._rows(loads, found)))

    def _rows(
        self, loads: Sequence[str], found: dict[tuple[str, Way], list[list[SetTimes]]]
    ) -> Iterator[dict[str, Any]]:
        for load in loads:
            for way in _WAYS:
                alone_s = median(each.from_request_s for each in found["alone", way][0])
                arrivals = self.arrivals(load, 0)
                took_s = [
                    each.from_request_s
                    for arrival, each in zip(arrivals, found[load, way][0], strict=True)
                    if arrival.write_set.write_class is WriteClass.BLOCKING
                ]
                bulk_s = [
                    each.done_s
                    for arrival, each in zip(arrivals, found[load, way][0], strict=True)
                    if arrival.write_set.write_class is WriteClass.BULK
                ]
                ordered = sorted(each / alone_s for each in took_s)
                yield {
                    "load": load,
                    "policy": way.name,
                    "alone, s": alone_s,
                    "mean stretch": fmean(ordered),
                    "p95": ordered[int(0.95 * len(ordered))],
                    "worst": ordered[-1],
                    "last bulk writer done, s": max(bulk_s) if bulk_s else "",
                }

    def arrivals(self, load: str, seed: int) -> list[Arrival]:
        rng = Random(seed)
        chunk = self.scale.chunk_bytes
        if load == "alone":
            return [
                Arrival(2.0 * number, WriteSet(f"alone-{number}", rng.choice(self.hosts), REPLICAS, (chunk,)))
                for number in range(6)
            ]
        if load == "bulk beside":
            bulk = [
                Arrival(
                    0.0,
                    WriteSet(f"bulk-{n}", host, REPLICAS, (chunk,) * _BULK_CHUNKS, write_class=WriteClass.BULK),
                )
                for n, host in enumerate(rng.sample(self.hosts, _BULK_WRITERS))
            ]
            return bulk + [
                Arrival(1.0 + _GAP_S * n, WriteSet(f"c-{n}", self.hosts[n % len(self.hosts)], REPLICAS, (chunk,)))
                for n in range(_CHECKPOINTS)
            ]
        writers = rng.sample(self.hosts, _QUERIES)
        phases_s = self._planned(writers, chunk) if load == "planned" else dict.fromkeys(writers, 0.0)
        return [
            Arrival(
                phases_s[writer] + period * _PERIOD_S,
                WriteSet(f"{writer}-{period}", writer, REPLICAS, (chunk,) * 2),
            )
            for writer in writers
            for period in range(_PERIODS)
        ]

    def _planned(self, writers: Sequence[str], chunk: int) -> dict[str, float]:
        disks = len(self.hosts) * self.scale.disk.best_rate
        alone_s = chunk / self.scale.disk.rate(1)
        loads = {DISKS: 2 * REPLICAS * chunk / disks}
        return plan_phases([Phased(writer, _PERIOD_S, alone_s, loads) for writer in writers]).phases_s
