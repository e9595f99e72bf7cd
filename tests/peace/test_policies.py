"""Guarantees of every policy, with random clusters and histories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.long_runs import often

from peacefs.peace.policies.express import ExpressPolicy
from peacefs.peace.policies.interface import (
    Aborted,
    Changed,
    Event,
    Finished,
    Policy,
    Submitted,
    Withdrawn,
)
from peacefs.peace.policies.ledger import Grant, WriteSet
from peacefs.peace.simulator.comparison import POLICIES
from peacefs.protocol.limits import small_chunk_bytes_max
from peacefs.topology.calibration import calibrate
from peacefs.topology.model import Topology
from peacefs.topology.routes import Routes

MB = 1_000_000
NAMES = ("random", "paper", "flow", "express")
#: Possible next steps: a submission, the end of the n-th grant in flight (complete or not), a withdrawal.
Step = tuple[str, object, int]

unhurried = settings(
    max_examples=often(15, 25),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    racks = draw(st.lists(st.sampled_from(["/a", "/b", "/c", "/far/d", "/far/e"]), min_size=1, unique=True))
    topology = Topology()
    for rack in racks:
        for number in range(draw(st.integers(1, 5))):
            speed = draw(st.sampled_from([1.0, 1.0, 1.0, 0.25]))
            disk = topology.defaults.disk.scaled(speed)
            topology = topology.with_server(f"{rack[-1]}{number}", rack, disk=disk)
    return topology


@st.composite
def write_sets(draw: st.DrawFn, topology: Topology, name: str) -> WriteSet:
    servers = sorted(topology.servers)
    sizes = st.sampled_from([64 * MB, 64 * MB, 3 * MB, small_chunk_bytes_max])
    return WriteSet(
        name,
        draw(st.sampled_from([*servers, "elsewhere"]) | st.none()),
        draw(st.integers(1, 5)),
        tuple(draw(st.lists(sizes, max_size=6))),
        frozenset(draw(st.lists(st.sampled_from(servers), max_size=2))),
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[Topology, list[Step], int]:
    topology = draw(topologies())
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, 25))):
        kind = draw(st.sampled_from(["submit", "submit", "finish", "finish", "abort", "withdraw"]))
        which = draw(st.integers(0, 9))
        written = draw(write_sets(topology, f"set-{which}")) if kind == "submit" else None
        steps.append((kind, written, which))
    return topology, steps, draw(st.integers(0, 99))


class Driver:
    """Plays a history to a policy, and independently records its grants."""

    def __init__(self, policy: Policy, audit: Callable[[Grant, WriteSet], None]) -> None:
        self.policy = policy
        self.grants: list[Grant] = []
        self.in_flight: list[Grant] = []
        self.sets: dict[str, WriteSet] = {}
        self._audit = audit
        self._now_s = 0.0

    def tell(self, *events: Event) -> list[Grant]:
        self._now_s += 0.5
        grants = self.policy.handle(events, self._now_s)
        for grant in grants:
            self._audit(grant, self.sets[grant.write_set])
        self.grants += grants
        self.in_flight += grants
        assert self.policy.grants_in_flight == self.in_flight
        return grants

    def play(self, steps: list[Step]) -> None:
        for kind, written, which in steps:
            match kind:
                case "submit":
                    assert isinstance(written, WriteSet)
                    self.sets[written.name] = written
                    self.tell(Submitted(written))
                case "withdraw":
                    self.tell(Withdrawn(f"set-{which}"))
                case _ if self.in_flight:
                    grant = self.in_flight.pop(which % len(self.in_flight))
                    self.tell(Finished(grant.number) if kind == "finish" else Aborted(grant.number))

    def finish_all(self) -> None:
        while self.in_flight:
            self.tell(Finished(self.in_flight.pop(0).number))


def no_audit(_grant: Grant, _written: WriteSet) -> None:
    return


def make(name: str, topology: Topology, seed: int) -> Policy:
    return POLICIES[name](topology, Random(seed))


@pytest.mark.parametrize("name", NAMES)
@given(history=histories())
@unhurried
def test_every_grant_is_for_distinct_allowed_nodes_as_many_as_asked_or_as_there_are(
    name: str, history: tuple[Topology, list[Step], int]
) -> None:
    topology, steps, seed = history

    def audit(grant: Grant, written: WriteSet) -> None:
        possible = topology.servers.keys() - written.exclude
        assert len(set(grant.chain)) == len(grant.chain) == min(written.replication, len(possible))
        assert set(grant.chain) <= possible

    driver = Driver(make(name, topology, seed), audit)
    driver.play(steps)
    driver.finish_all()


@pytest.mark.parametrize("name", NAMES)
@given(history=histories())
@unhurried
def test_two_racks_hold_a_chunk_if_there_are_two_and_the_writer_keeps_none_if_it_need_not(
    name: str, history: tuple[Topology, list[Step], int]
) -> None:
    topology, steps, seed = history
    slots = calibrate(topology).slots

    def audit(grant: Grant, written: WriteSet) -> None:
        others = topology.servers.keys() - written.exclude - {written.writer}
        quick = {node for node in others if slots[node]} if name == "express" else others
        preferred = quick if len(quick) >= written.replication else others
        if len(preferred) >= written.replication:
            assert written.writer not in grant.chain
        if len(grant.chain) > 1 and len({topology.servers[node].rack for node in preferred}) > 1:
            assert len({topology.servers[node].rack for node in grant.chain}) > 1

    driver = Driver(make(name, topology, seed), audit)
    driver.play(steps)


@pytest.mark.parametrize("name", ["random", "express"])
@given(history=histories())
@unhurried
def test_a_pipeline_never_comes_back_to_a_rack_it_has_left(
    name: str, history: tuple[Topology, list[Step], int]
) -> None:
    topology, steps, seed = history

    def audit(grant: Grant, _written: WriteSet) -> None:
        racks = [topology.servers[node].rack for node in grant.chain]
        entered = [rack for at, rack in enumerate(racks) if not at or racks[at - 1] != rack]
        assert len(entered) == len(set(entered))

    Driver(make(name, topology, seed), audit).play(steps)


@pytest.mark.parametrize("name", NAMES)
@given(history=histories())
@unhurried
def test_a_chunk_is_granted_once_and_again_only_after_it_was_aborted(
    name: str, history: tuple[Topology, list[Step], int]
) -> None:
    topology, steps, seed = history
    driver = Driver(make(name, topology, seed), no_audit)
    # A set is submitted once: a restated set has new chunks with the same numbers.
    seen: set[object] = set()
    once = [step for step in steps if step[0] != "submit" or not (step[2] in seen or seen.add(step[2]))]
    driver.play(once)
    driver.finish_all()
    aborted = sum(1 for step in once if step[0] == "abort")
    granted = Counter((grant.write_set, grant.chunk) for grant in driver.grants)
    assert sum(granted.values()) - len(granted) <= aborted
    for grant in driver.grants:
        assert grant.chunk_bytes == driver.sets[grant.write_set].chunks[grant.chunk]
    assert len({grant.number for grant in driver.grants}) == len(driver.grants)


@pytest.mark.parametrize("name", NAMES)
@given(history=histories())
@unhurried
def test_the_same_seed_gives_the_same_plan(name: str, history: tuple[Topology, list[Step], int]) -> None:
    topology, steps, seed = history
    drivers = [Driver(make(name, topology, seed), no_audit) for _ in range(2)]
    for driver in drivers:
        driver.play(steps)
    assert drivers[0].grants == drivers[1].grants


@pytest.mark.parametrize("name", NAMES)
@given(history=histories())
@unhurried
def test_nothing_waits_in_an_idle_cluster_and_all_is_written_in_the_end(
    name: str, history: tuple[Topology, list[Step], int]
) -> None:
    topology, steps, seed = history
    driver = Driver(make(name, topology, seed), no_audit)
    driver.play(steps)
    driver.finish_all()
    impossible = sum(
        len(written.chunks) for written in driver.sets.values() if topology.servers.keys() <= written.exclude
    )
    assert driver.policy.chunks_waiting <= impossible


@given(history=histories())
@unhurried
def test_express_never_exceeds_a_slot_or_a_link(history: tuple[Topology, list[Step], int]) -> None:
    topology, steps, seed = history
    policy = ExpressPolicy(topology, Random(seed))
    calibration, routes = calibrate(topology), Routes(topology)

    class Auditor(Driver):
        def tell(self, *events: Event) -> list[Grant]:
            grants = super().tell(*events)
            large = [grant for grant in self.in_flight if grant.chunk_bytes > small_chunk_bytes_max]
            receiving = Counter(node for grant in large for node in grant.chain)
            crossing: Counter[tuple[str, str]] = Counter()
            for grant in large:
                ours = (
                    [grant.writer] if grant.writer in topology.servers and grant.writer not in grant.chain else []
                )
                for a, b in pairwise([*ours, *grant.chain]):
                    (way,) = routes.between_racks(topology.servers[str(a)].rack, topology.servers[b].rack)
                    crossing.update(way)
            loads = policy.loads()
            for node, (taken, slots) in loads.slots.items():
                assert receiving[node] == taken <= slots <= max(1, calibration.slots[node])
            for link, (taken, streams) in loads.links.items():
                assert crossing[link] == taken <= streams == calibration.link_streams[link]
            return grants

    auditor = Auditor(policy, no_audit)
    auditor.play(steps)
    auditor.finish_all()


@given(history=histories(), again=st.lists(st.integers(1, 60), max_size=20))
@unhurried
def test_capacity_is_given_back_exactly_once(history: tuple[Topology, list[Step], int], again: list[int]) -> None:
    topology, steps, seed = history
    policies = [ExpressPolicy(topology, Random(seed)) for _ in range(2)]
    told_again, told_nothing = (Driver(policy, no_audit) for policy in policies)
    told_again.play(steps)
    told_nothing.play(steps)
    under_way = {grant.number for grant in told_again.in_flight}
    told_again.tell(*(Finished(number) for number in again if number not in under_way))
    told_nothing.tell()
    assert policies[0].loads() == policies[1].loads(), "what has ended cannot end again, nor what never began"
    told_again.finish_all()
    loads = policies[0].loads()
    assert all(taken == 0 for taken, _ in (*loads.slots.values(), *loads.links.values()))


@pytest.mark.parametrize("name", NAMES)
@given(history=histories(), data=st.data())
@unhurried
def test_nodes_may_come_go_and_move_while_chunks_are_on_their_way(
    name: str, history: tuple[Topology, list[Step], int], data: st.DataObject
) -> None:
    topology, steps, seed = history
    present = {"now": topology}

    def audit(grant: Grant, _written: WriteSet) -> None:
        assert set(grant.chain) <= present["now"].servers.keys()

    policy = make(name, topology, seed)
    driver = Driver(policy, audit)
    for at in range(0, len(steps), 5):
        driver.play(steps[at : at + 5])
        server = data.draw(st.sampled_from([*sorted(topology.servers), "new"]))
        rack = data.draw(st.sampled_from(["/a", "/b", "/new"]) | st.none())
        known = present["now"]
        present["now"] = known.without_server(server) if rack is None else known.with_server(server, rack)
        driver.tell(Changed(present["now"]))
    driver.finish_all()
    if isinstance(policy, ExpressPolicy):
        loads = policy.loads()
        assert all(taken == 0 for taken, _ in (*loads.slots.values(), *loads.links.values()))
