"""The order of waiting sets is updated set by set; the result equals sorting all of them."""

from __future__ import annotations

import time
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_runs import often

from peacefs.peace.policies.express import AGE_BYTES_S, BEGUN_S, ExpressPolicy
from peacefs.peace.policies.interface import Aborted, Changed, Event, Finished, Submitted, Withdrawn
from peacefs.peace.policies.ledger import Grant, PendingSet, WriteSet
from peacefs.peace.simulator.scenarios import star
from peacefs.topology.model import Topology
from peacefs.topology.rate_curve import MB


class Sorting(ExpressPolicy):
    """Looks at every set at each event, and sorts them as `express` documents."""

    def _admit(self, now_s: float) -> list[Grant]:
        for pending in self._ledger.pending():
            self._changed[pending.write_set.name] = None
        self._take_in_changes()
        grants = self._admit_small()
        less = self._less()
        waiting = [pending for pending in self._ledger.pending() if pending.waiting]
        nobody_refused = True
        for pending in sorted(waiting, key=lambda each: (self._counts(each, less), each.order)):
            while self._wants_more(pending) and (chain := self._place(pending)) is not None:
                grants.append(self._reserve(pending, chain))
            if nobody_refused and self._wants_more(pending):
                nobody_refused = False
                if pending.refused_since_s is None:
                    pending.refused_since_s = now_s
                if self._chains and now_s - pending.refused_since_s >= self._patience_s:
                    break
        return grants

    def _less(self) -> dict[str | None, int]:
        unfinished: dict[str | None, int] = {}
        for pending in self._ledger.pending():
            rack = self._rack_of(pending)
            unfinished[rack] = unfinished.get(rack, 0) + pending.unfinished_bytes
        leaves = self._bytes_s_out_of_rack
        return {
            rack: round(AGE_BYTES_S * total / leaves[rack]) for rack, total in unfinished.items() if rack in leaves
        }

    def _counts(self, pending: PendingSet, less: dict[str | None, int]) -> int:
        asked_s = pending.asked_s - (BEGUN_S if pending.started else 0.0)
        own = pending.unfinished_bytes + round(AGE_BYTES_S * asked_s)
        return own - less.get(self._rack_of(pending), 0)


def networks() -> st.SearchStrategy[Topology]:
    def made(racks: int, per_rack: int, slow: int) -> Topology:
        topology = star(racks, per_rack, 2.0)
        for name in sorted(topology.servers)[:: per_rack + 1][:slow]:
            server = topology.servers[name]
            topology = topology.with_server(name, server.rack, disk=server.disk.scaled(0.2))
        return topology

    return st.builds(made, st.integers(1, 4), st.integers(1, 6), st.integers(0, 2))


Step = tuple[str, int, int, int, float]
STEPS = st.lists(
    st.tuples(
        st.sampled_from("ssssseeeeeeeawcm"),
        st.integers(0, 30),
        st.integers(1, 5),
        st.integers(1, 3),
        st.sampled_from([0.0, 0.1, 1.0, 40.0]),
    ),
    max_size=80,
)


class Twins:
    """Both ways with the same events."""

    def __init__(self, topology: Topology, seed: int) -> None:
        self.topology = topology
        self.policies = [
            kind(topology, Random(seed), writer_holds_replica=bool(seed % 2)) for kind in (ExpressPolicy, Sorting)
        ]
        self.now_s = 0.0
        self.in_flight: list[Grant] = []

    def tell(self, *events: Event) -> None:
        kept, sorted_ = (policy.handle(events, self.now_s) for policy in self.policies)
        assert kept == sorted_
        self.in_flight += kept

    def step(self, step: Step) -> None:
        what, which, chunks, replication, later_s = step
        self.now_s += later_s
        servers = sorted(self.topology.servers)
        match what:
            case "s":
                writer = servers[which % len(servers)] if which % 7 else None
                size = 64 * MB if which % 5 else 1000
                excluded = frozenset(servers[which % 3 : which % 3 + 1]) if which % 4 == 3 else frozenset[str]()
                name = f"set-{which}"
                sizes = (size, *(64 * MB + which for _ in range(chunks)))
                self.tell(Submitted(WriteSet(name, writer, replication, sizes, excluded)))
            case "e" | "a" if self.in_flight:
                grant = self.in_flight.pop(which % len(self.in_flight))
                self.tell(Finished(grant.number) if what == "e" else Aborted(grant.number))
            case "w":
                self.tell(Withdrawn(f"set-{which}"))
            case "m":
                server = servers[which % len(servers)]
                self.topology = self.topology.with_server(server, f"/rack-{which % 3:02}")
                self.tell(Changed(self.topology))
            case _:
                self.tell()


@given(networks(), STEPS, st.integers(0, 5))
@settings(deadline=None)
def test_the_plan_is_that_of_sorting_all_sets_at_each_event(
    topology: Topology, steps: list[Step], seed: int
) -> None:
    twins = Twins(topology, seed)
    for step in steps:
        twins.step(step)
    for _ in range(1000):
        if not twins.in_flight:
            break
        twins.now_s += 1.0
        twins.tell(Finished(twins.in_flight.pop(0).number))
    kept, sorted_ = twins.policies
    assert kept.waiting() == sorted_.waiting()
    assert kept.loads() == sorted_.loads()


def test_the_plan_is_the_same_with_a_thousand_sets_waiting() -> None:
    topology = star(10, 10, 4.0)
    twins = Twins(topology, 3)
    rng = Random(3)
    servers = sorted(topology.servers)
    for begin in range(0, 1000, 100):
        twins.now_s += 0.5
        chunks = [tuple(rng.randint(60, 64) * MB for _ in range(rng.randint(1, 8))) for _ in range(100)]
        twins.tell(
            *(
                Submitted(WriteSet(f"set-{begin + number}", rng.choice(servers), 3, sizes))
                for number, sizes in enumerate(chunks)
            )
        )
    for _ in range(often(50, 100)):
        twins.now_s += 0.05
        twins.tell(Finished(twins.in_flight.pop(rng.randrange(len(twins.in_flight))).number))
    assert sum(policy.chunks_waiting for policy in twins.policies) > 2000


@pytest.mark.parametrize("waiting", [1000])
def test_an_event_costs_what_it_changes_however_many_wait(waiting: int) -> None:
    """Measured as a ratio of processor times to sorting, because machines differ."""
    took: dict[str, float] = {}
    for kind in (ExpressPolicy, Sorting):
        topology, rng = star(10, 10, 4.0), Random(5)
        policy = kind(topology, Random(0))
        servers = sorted(topology.servers)
        in_flight = policy.handle(
            [
                Submitted(WriteSet(f"set-{number}", rng.choice(servers), 3, (64 * MB,) * 20))
                for number in range(waiting)
            ],
            0.0,
        )
        begun_s = time.process_time()
        for number in range(often(80, 200)):
            in_flight += policy.handle([Finished(in_flight.pop(0).number)], number * 0.01)
        took[kind.__name__] = time.process_time() - begun_s
    print(took)
    assert took["ExpressPolicy"] * 5 < took["Sorting"]
