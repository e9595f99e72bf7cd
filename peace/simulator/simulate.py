"""Simulates a cluster under a policy, chunk by chunk, in virtual time.

A chunk in flight is one flow through all its hops. Flows share disks, links and network cards max-min fairly. The
policy is told of a chunk's end `completion_delay_s` later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count

from peacefs.peace.policies.interface import Event, Finished, Policy, Submitted
from peacefs.peace.policies.ledger import Grant, WriteSet
from peacefs.topology.model import Topology
from peacefs.topology.rate_curve import PAPER_CLIENT, RateCurve

from .fluid import max_min_rates
from .fluid_network import FluidNetwork


@dataclass(frozen=True, slots=True)
class Arrival:
    """The time at which a writer submits a set."""

    at_s: float
    write_set: WriteSet


@dataclass(slots=True)
class WriteSetTimes:
    """When a set was submitted, got its first grant and was done, in virtual seconds."""

    asked_s: float
    granted_s: float
    done_s: float

    @property
    def from_request_s(self) -> float:
        """The writer's waiting time, from request to done."""
        return self.done_s - self.asked_s

    @property
    def span_s(self) -> float:
        """The duration of the writing, from the first grant to done."""
        return self.done_s - self.granted_s


def simulate(
    topology: Topology,
    policy: Policy,
    arrivals: Sequence[Arrival],
    *,
    client: RateCurve = PAPER_CLIENT,
    completion_delay_s: float = 0.02,
) -> dict[str, WriteSetTimes]:
    """Run until all sets are written; return their times by name. It is asserted that the policy does not stop
    granting while chunks wait and none are in flight.
    """
    return _Simulation(topology, policy, arrivals, client, completion_delay_s).run()


class _Simulation:
    def __init__(
        self,
        topology: Topology,
        policy: Policy,
        arrivals: Sequence[Arrival],
        client: RateCurve,
        completion_delay_s: float,
    ) -> None:
        self._network = FluidNetwork(topology, client)
        self._policy = policy
        self._delay_s = completion_delay_s
        self._sequence = count()
        self._news: list[tuple[float, int, Event]] = [
            (arrival.at_s, next(self._sequence), Submitted(arrival.write_set)) for arrival in arrivals
        ]
        heapify(self._news)
        self._unwritten = {arrival.write_set.name: len(arrival.write_set.chunks) for arrival in arrivals}
        self._times = {arrival.write_set.name: WriteSetTimes(arrival.at_s, -1.0, -1.0) for arrival in arrivals}
        self._grants: dict[int, Grant] = {}
        self._flows: dict[int, list[int]] = {}
        self._left: dict[int, float] = {}
        self._rates: dict[int, float] = {}
        self._now_s = 0.0

    def run(self) -> dict[str, WriteSetTimes]:
        while self._news or self._flows:
            if len(self._rates) != len(self._flows):
                self._rates = max_min_rates(self._flows, self._network.capacity)
            self._step()
        assert not any(self._unwritten.values()), "the policy left chunks waiting with nothing on its way"
        return self._times

    def _step(self) -> None:
        """Advance to the next end of a chunk or event for the policy, whichever is first."""
        rates = self._rates
        lasts_s, first = min(
            ((left / rates[flow], flow) for flow, left in self._left.items()), default=(float("inf"), -1)
        )
        news_s = self._news[0][0] - self._now_s if self._news else float("inf")
        elapsed_s = min(lasts_s, news_s)
        self._now_s += elapsed_s
        for flow in self._left:
            self._left[flow] -= rates[flow] * elapsed_s
        if lasts_s <= news_s:
            self._end(first)
        else:
            self._tell()

    def _end(self, flow: int) -> None:
        grant = self._grants.pop(flow)
        del self._flows[flow], self._left[flow], self._rates[flow]
        self._rates = {}
        self._unwritten[grant.write_set] -= 1
        if not self._unwritten[grant.write_set]:
            self._times[grant.write_set].done_s = self._now_s
        heappush(self._news, (self._now_s + self._delay_s, next(self._sequence), Finished(grant.number)))

    def _tell(self) -> None:
        """Pass all events of this moment to the policy."""
        self._now_s = self._news[0][0]
        events: list[Event] = []
        while self._news and self._news[0][0] <= self._now_s:
            events.append(heappop(self._news)[2])
        for grant in self._policy.handle(events, self._now_s):
            times = self._times[grant.write_set]
            if times.granted_s < 0:
                times.granted_s = self._now_s
            self._grants[grant.number] = grant
            self._flows[grant.number] = self._network.resources(grant)
            self._left[grant.number] = float(grant.chunk_bytes)
            self._rates = {}
