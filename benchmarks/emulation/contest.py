"""Run the same write sets with one way after another, in the emulation and in the simulator."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from peacefs.peace.simulator.bounds import WaitingBounds, bounds
from peacefs.peace.simulator.simulate import Arrival, simulate

from .emulation import LEAD_S, Emulation
from .orders import WriteOrder
from .ways import PARALLEL, Way


@dataclass(frozen=True, slots=True)
class SetTimes:
    """The times of one set, in the paper's seconds since the first set could be requested."""

    asked_s: float
    granted_s: float
    done_s: float

    @property
    def from_request_s(self) -> float:
        return self.done_s - self.asked_s

    @property
    def span_s(self) -> float:
        return self.done_s - self.granted_s


class Contest:
    """Runs write sets on a cluster, which it measures when it is created.

    Arrivals are in seconds and bytes of the emulation, with hosts as writers. Results are in seconds of the
    paper's cluster.
    """

    def __init__(self, emulated: Emulation) -> None:
        self._cluster = emulated.cluster
        self._scale = emulated.scale
        self._hosts = {host.name: host for host in emulated.cluster.network.hosts}
        self._made = emulated.as_made()
        self._measured = emulated.measured()
        self._rounds = 0

    def emulate(self, way: Way, arrivals: Sequence[Arrival], *, kept: bool = True) -> list[SetTimes]:
        """Run the arrivals in order. Sets that are not `kept` are deleted right after they are written."""
        self._rounds += 1
        tree = f"/contest/{self._rounds}"
        self._cluster.use_policy(way.policy)
        begin_s = time.monotonic() + LEAD_S
        orders = []
        for arrival in arrivals:
            write_set = arrival.write_set
            assert write_set.writer is not None
            order = WriteOrder(
                path=f"{tree}/{write_set.name}",
                chunks=list(write_set.chunks),
                replication=write_set.replication,
                exclude=[self._cluster.node_of[write_set.writer]] if way.writer_excluded else [],
                parallel=PARALLEL,
                at_s=begin_s + arrival.at_s,
                kept=kept,
                write_class=write_set.write_class.word,
            )
            orders.append((self._hosts[write_set.writer], order))
        written = self._cluster.write(orders)
        self._cluster.delete(tree)
        return [self._in_paper(begin_s, each.asked_s, each.granted_s, each.done_s) for each in written]

    def simulate(self, way: Way, arrivals: Sequence[Arrival], seed: int) -> list[SetTimes]:
        """Simulate what `emulate` runs, with the measured rates."""
        policy = way.simulated(self._measured, Random(seed))
        times = simulate(self._measured, policy, arrivals, client=self._scale.client)
        found = [times[arrival.write_set.name] for arrival in arrivals]
        return [self._in_paper(0.0, each.asked_s, each.granted_s, each.done_s) for each in found]

    def bounds(self, arrivals: Sequence[Arrival]) -> WaitingBounds:
        """Return bounds, from the configured rates of links and disks. Measured rates are lower and would be no
        bounds.
        """
        found = bounds(self._made, arrivals, self._scale.client)
        return WaitingBounds(self._scale.paper_s(found.mean_s), self._scale.paper_s(found.makespan_s))

    def _in_paper(self, begin_s: float, *moments_s: float) -> SetTimes:
        return SetTimes(*(self._scale.paper_s(moment_s - begin_s) for moment_s in moments_s))
