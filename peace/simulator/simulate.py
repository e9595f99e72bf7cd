"""Simulates a cluster under a policy, chunk by chunk, in virtual time.

A chunk in flight is one flow through all its hops. Flows share disks, links and network cards max-min fairly. The
policy is told of a chunk's end `completion_delay_s` later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from peacefs.peace.policies.interface import Aborted, Changed, Event, Finished, Policy, Submitted
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
    """Run until all sets are written; return their times by name.

    Asserts that the policy grants something if chunks wait and none are in flight.
    """
    return Simulation(topology, policy, arrivals, client=client, completion_delay_s=completion_delay_s).run()


@dataclass(frozen=True, slots=True)
class Loss:
    """A node is dead from `at_s` until it returns at `back_s`."""

    node: str
    at_s: float
    back_s: float


class Simulation:
    """One run. `follow` is called when a set is written, and returns what its writer submits next.

    `losses` are nodes that die and return; chunks on their way through them are aborted. `watch` is called after
    each step with the time that it took and the grants in flight with their rates.
    """

    def __init__(
        self,
        topology: Topology,
        policy: Policy,
        arrivals: Iterable[Arrival],
        *,
        client: RateCurve = PAPER_CLIENT,
        completion_delay_s: float = 0.02,
        follow: Callable[[str, float], Iterable[Arrival]] | None = None,
        losses: Iterable[Loss] = (),
    ) -> None:
        self.topology = topology
        self._network = FluidNetwork(topology, client)
        self._policy = policy
        self._delay_s = completion_delay_s
        self._follow = follow
        self._sequence = count()
        self._news: list[tuple[float, int, Event]] = []
        self._unwritten: dict[str, int] = {}
        self._times: dict[str, WriteSetTimes] = {}
        for arrival in arrivals:
            self.submit(arrival)
        for loss in losses:
            self._push(loss.at_s, Changed(topology.without_server(loss.node)))
            self._push(loss.back_s, Changed(topology))
        #: Bytes written of each set.
        self.written: Counter[str] = Counter()
        self.watch: Callable[[float, float, dict[int, Grant], dict[int, float]], None] | None = None
        self._grants: dict[int, Grant] = {}
        self._flows: dict[int, list[int]] = {}
        self._left: dict[int, float] = {}
        self._rates: dict[int, float] = {}
        self._now_s = 0.0

    def submit(self, arrival: Arrival) -> None:
        """Let a set be submitted at its time. Names must be unique."""
        name = arrival.write_set.name
        assert name not in self._times
        self._push(arrival.at_s, Submitted(arrival.write_set))
        self._unwritten[name] = len(arrival.write_set.chunks)
        self._times[name] = WriteSetTimes(arrival.at_s, -1.0, -1.0)

    def _push(self, at_s: float, event: Event) -> None:
        heappush(self._news, (at_s, next(self._sequence), event))

    def run_until(self, until_s: float) -> dict[str, WriteSetTimes]:
        """Run until this time, or until all sets are written. Unfinished sets have a `done_s` of -1."""
        while (self._news or self._flows) and self._now_s < until_s:
            self._advance()
        return self._times

    def _advance(self) -> None:
        if len(self._rates) != len(self._flows):
            self._rates = max_min_rates(self._flows, self._network.capacity)
        self._step()

    def run(self) -> dict[str, WriteSetTimes]:
        """Run until all sets are written."""
        while self._news or self._flows:
            self._advance()
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
        if self.watch is not None:
            self.watch(self._now_s, elapsed_s, self._grants, rates)
        self._now_s += elapsed_s
        for flow in self._left:
            self._left[flow] -= rates[flow] * elapsed_s
        if lasts_s <= news_s:
            self._end(first)
        else:
            self._tell()

    def _end(self, flow: int) -> None:
        grant = self._take_off(flow)
        self.written[grant.write_set] += grant.chunk_bytes
        self._unwritten[grant.write_set] -= 1
        if not self._unwritten[grant.write_set]:
            self._times[grant.write_set].done_s = self._now_s
            if self._follow is not None:
                for arrival in self._follow(grant.write_set, self._now_s):
                    self.submit(arrival)
        self._push(self._now_s + self._delay_s, Finished(grant.number))

    def _take_off(self, flow: int) -> Grant:
        del self._flows[flow], self._left[flow]
        self._rates = {}
        return self._grants.pop(flow)

    def _abort_lost(self, topology: Topology) -> list[Event]:
        """Abort the chunks whose pipeline contains a node that is no longer in the network."""
        lost = [
            (number, [node for node in grant.chain if node not in topology.servers])
            for number, grant in self._grants.items()
        ]
        aborted: list[Event] = []
        for number, nodes in lost:
            if nodes:
                self._take_off(number)
                aborted.append(Aborted(number, frozenset(nodes)))
        return aborted

    def _tell(self) -> None:
        """Pass all events of this moment to the policy."""
        self._now_s = self._news[0][0]
        events: list[Event] = []
        while self._news and self._news[0][0] <= self._now_s:
            event = heappop(self._news)[2]
            events.append(event)
            if isinstance(event, Changed):
                events += self._abort_lost(event.topology)
        for grant in self._policy.handle(events, self._now_s):
            times = self._times[grant.write_set]
            if times.granted_s < 0:
                times.granted_s = self._now_s
            self._grants[grant.number] = grant
            self._flows[grant.number] = self._network.resources(grant)
            self._left[grant.number] = float(grant.chunk_bytes)
            self._rates = {}
