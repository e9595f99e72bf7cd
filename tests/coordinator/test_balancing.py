"""Balancing moves chunks from full to empty datanodes, never worsens a chunk's safety, and ends."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_runs import often
from support.play import Play, registration

from peacefs.coordinator.cluster.repair import ReplicaCopy
from peacefs.coordinator.metadata.garbage import Garbage
from peacefs.coordinator.metadata.model import ChunkRecord, Mode
from peacefs.peace.balance_plan import BalancePhase, BalancePlan, Fill
from peacefs.protocol.limits import (
    MIB,
    balance_bytes_per_second_default,
    balance_failures_max,
    balance_silence_s,
    chunk_bytes_max,
)
from peacefs.protocol.messages import DeleteChunks, Heartbeat, Replica, ReportChunks, Usage

CAPACITY = 1000 * MIB
RATE = float(balance_bytes_per_second_default)


@dataclass(frozen=True)
class Layout:
    """Racks by datanode; for each chunk, its length and holders."""

    racks: dict[str, str]
    chunks: dict[int, tuple[int, tuple[str, ...]]]


class BalancedPlay(Play):
    """Datanodes that obey orders, and report them in their next heartbeat."""

    def __init__(self, layout: Layout, *, capacity: int = CAPACITY) -> None:
        super().__init__()
        self.layout = layout
        self.capacity = capacity
        self.held: dict[str, dict[int, int]] = {node: {} for node in layout.racks}
        for chunk, (length, holders) in layout.chunks.items():
            for node in holders:
                self.held[node][chunk] = length
        self.cluster.load(
            [ChunkRecord(chunk, 1, length, len(on), on) for chunk, (length, on) in layout.chunks.items()]
        )
        for node, rack in layout.racks.items():
            self.cluster.register(self.now_s, registration(node, rack))
            holding = [Replica(chunk, 1, length) for chunk, length in self.held[node].items()]
            self.cluster.heartbeat(self.now_s, node, Heartbeat(self.usage(node)))
            self.cluster.report(self.now_s, node, ReportChunks(holding, last=True))
        self.open_for_business()

    def usage(self, node: str) -> Usage:
        used = sum(self.held[node].values())
        return Usage(self.capacity, used, self.capacity - used, live_bytes=used)

    def start(self, threshold: float = 0.1, rate: float = RATE, name: str = "run") -> None:
        self.cluster.balancer.start(self.now_s, name, self.cluster.members, threshold, rate)

    @property
    def phase(self) -> BalancePhase:
        run = self.cluster.balancer.run
        assert run is not None
        return run.phase

    def tick(self) -> list[ReplicaCopy]:
        """Let a quarter of a second pass in which nothing is obeyed; return the ordered copies."""
        self.now_s += 0.25
        self.cluster.balancer.renew(self.now_s, "run")
        ticked = self.cluster.tick(self.now_s, Garbage())
        self.obey_deletes(ticked.orders)
        self.prove(ticked)
        return ticked.copies

    def ask_and_hear(self) -> None:
        """Ask about everything that has arrived in one tick, and judge it in the next."""
        self.tick()
        self.tick()

    def beat(self, node: str, *added: Replica, removed: tuple[Replica, ...] = ()) -> None:
        beat = Heartbeat(self.usage(node), added=list(added), removed=list(removed))
        self.obey_deletes(self.cluster.heartbeat(self.now_s, node, beat))

    def obey_deletes(self, orders: list) -> None:  # type: ignore[type-arg]
        for order in orders:
            if isinstance(order.message, DeleteChunks):
                for replica in order.message.replicas:
                    self.held[order.node].pop(replica.chunk, None)
                    self.beat(order.node, removed=(replica,))

    def copy(self, copy: ReplicaCopy, *, answer: bool = True) -> None:
        length = self.layout.chunks[copy.chunk][0]
        self.held[copy.target][copy.chunk] = length
        if answer:
            self.cluster.answered(copy, copied=True)
        self.beat(copy.target, Replica(copy.chunk, copy.version, length))

    def run_to_the_end(self) -> list[ReplicaCopy]:
        made = []
        for _ in range(4000):
            copies = self.tick()
            for node in self.held:
                self.beat(node)
            for copy in copies:
                self.copy(copy)
                self.check()
            made += copies
            if self.phase is not BalancePhase.RUNNING:
                return made
        raise AssertionError("it does not end")

    def check(self) -> None:
        """Check that no chunk has fewer replicas, or is on fewer racks, than before."""
        for chunk, (_length, holders) in self.layout.chunks.items():
            now = [node for node, held in self.held.items() if chunk in held]
            assert len(now) >= len(holders)
            racks_before = {self.layout.racks[node] for node in holders}
            assert len({self.layout.racks[node] for node in now}) >= len(racks_before)
            known = self.cluster.chunks.get(chunk)
            assert known is not None and sorted(known.holders) == sorted(now)


def uneven(chunks: int = 40, length: int = 10 * MIB) -> BalancedPlay:
    """Return two full and two empty datanodes, one of each kind per rack."""
    racks = {"dn-1": "/a", "dn-2": "/b", "dn-3": "/a", "dn-4": "/b"}
    return BalancedPlay(Layout(racks, dict.fromkeys(range(1, chunks + 1), (length, ("dn-1", "dn-2")))))


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    racks = {
        f"dn-{number}": f"/rack-{draw(st.integers(1, 3))}" for number in range(1, draw(st.integers(2, 6)) + 1)
    }
    nodes = sorted(racks)
    # A few of them hold most data, so that there is something to balance.
    crowd = nodes[: draw(st.integers(1, len(nodes)))]
    chunks = {}
    for chunk in range(1, draw(st.integers(0, 40)) + 1):
        holders = draw(st.lists(st.sampled_from(crowd), min_size=1, max_size=3, unique=True))
        chunks[chunk] = draw(st.sampled_from([0, 1000, 200 * 1024, MIB, 9 * MIB])), tuple(holders)
    return Layout(racks, chunks)


class TestARun:
    @settings(max_examples=often(24, 60), deadline=None)
    @given(layouts(), st.sampled_from([0.0001, 0.01, 0.1]))
    def test_ends_and_moves_no_more_than_it_must_and_leaves_no_chunk_worse_off(
        self, layout: Layout, threshold: float
    ) -> None:
        play = BalancedPlay(layout)
        used = {node: sum(held.values()) for node, held in play.held.items()}
        mean = sum(used.values()) / len(used)
        play.start(threshold)
        made = play.run_to_the_end()
        moved = sum(layout.chunks[copy.chunk][0] for copy in made)
        assert moved <= sum(max(0.0, each - mean) for each in used.values()) + 1
        assert len({(copy.chunk, copy.source) for copy in made}) == len(made)
        after = {node: sum(held.values()) for node, held in play.held.items()}
        # No datanode crosses the mean.
        for node in used:
            assert min(used[node], mean) - 1 <= after[node] <= max(used[node], mean) + 1
        outside = [node for node in after if abs(after[node] - mean) > threshold * CAPACITY + 1]
        assert (play.phase is BalancePhase.BALANCED) == (not outside)
        if play.phase is BalancePhase.BALANCED:
            assert play.cluster.balancer.run is not None and play.cluster.balancer.run.plan.left_bytes() == 0
        assert not play.cluster.chunks.under and not play.cluster.chunks.over and not play.cluster.chunks.missing

    def test_a_balanced_cluster_is_left_alone(self) -> None:
        play = BalancedPlay(Layout({"dn-1": "/a", "dn-2": "/a"}, {1: (50 * MIB, ("dn-1",))}))
        play.start(0.1)
        assert play.run_to_the_end() == []
        assert play.phase is BalancePhase.BALANCED

    def test_the_full_give_to_the_empty_until_all_are_near_the_mean(self) -> None:
        play = uneven()
        play.start(0.05)
        made = play.run_to_the_end()
        assert play.phase is BalancePhase.BALANCED
        assert {copy.source for copy in made} == {"dn-1", "dn-2"}
        assert {copy.target for copy in made} == {"dn-3", "dn-4"}
        for node in play.held:
            assert abs(play.usage(node).live_bytes - 200 * MIB) <= 50 * MIB

    def test_without_a_chunk_that_may_be_moved_it_says_that_it_is_stuck(self) -> None:
        # The only replica outside rack /a is on the full datanode.
        racks = {"dn-1": "/a", "dn-2": "/b", "dn-3": "/a"}
        play = BalancedPlay(Layout(racks, dict.fromkeys(range(1, 50), (10 * MIB, ("dn-2", "dn-1")))))
        play.start(0.01)
        made = play.run_to_the_end()
        assert {copy.source for copy in made} <= {"dn-1"}
        assert play.phase is BalancePhase.STUCK

    def test_one_run_at_a_time(self) -> None:
        play = uneven()
        play.start(name="run")
        play.start(name="other")
        assert play.cluster.balancer.run is not None and play.cluster.balancer.run.name == "run"
        play.cluster.balancer.cancel("other")
        assert play.phase is BalancePhase.RUNNING
        play.cluster.balancer.cancel("run")
        play.start(name="other")
        assert play.cluster.balancer.run.name == "other" and play.phase is BalancePhase.RUNNING
        play.start(name="run")
        assert play.cluster.balancer.run.name == "other"

    def test_one_that_nobody_renews_ends_and_what_is_under_way_is_carried_through(self) -> None:
        play = uneven()
        play.start()
        copies = play.tick()
        assert copies
        for _ in range(round(balance_silence_s) + 2):
            play.now_s += 1.0
            for node in play.held:
                play.beat(node)
            assert not [
                copy
                for copy in play.cluster.tick(play.now_s, Garbage()).copies
                if play.phase is not BalancePhase.RUNNING
            ]
        assert play.phase is BalancePhase.ABANDONED
        for copy in copies:
            play.copy(copy)
        play.ask_and_hear()
        play.check()
        assert play.cluster.balancer.under_way == 0
        assert not play.cluster.chunks.over

    def test_a_cancelled_one_begins_nothing_more(self) -> None:
        play = uneven()
        play.start()
        copies = play.tick()
        play.cluster.balancer.cancel("run")
        for copy in copies:
            play.copy(copy)
        assert [play.tick() for _ in range(10)] == [[]] * 10
        assert play.phase is BalancePhase.CANCELLED
        play.check()

    def test_one_begins_with_what_an_earlier_one_left_under_way(self) -> None:
        play = uneven(chunks=22)
        play.start(0.1)
        first = play.tick()
        play.cluster.balancer.cancel("run")
        play.cluster.balancer.start(play.now_s, "other", play.cluster.members, 0.09, RATE)
        assert play.cluster.balancer.run is not None
        assert play.cluster.balancer.run.plan.left_bytes() == 20 * 2 * MIB - len(first) * 10 * MIB
        for copy in first:
            play.copy(copy)
        assert play.cluster.balancer.run.bytes_moved == len(first) * 10 * MIB


class TestAMove:
    def test_the_source_keeps_its_replica_until_the_target_has_reported_the_copy(self) -> None:
        play = uneven()
        play.start()
        copy, *_ = play.tick()
        play.cluster.answered(copy, copied=True)
        play.tick()
        assert copy.chunk in play.held[copy.source]
        play.copy(copy, answer=False)
        assert copy.chunk in play.held[copy.source], "that the target says so is not enough"
        play.ask_and_hear()
        assert copy.chunk not in play.held[copy.source]
        play.check()

    @pytest.mark.parametrize("content", ["something else", None], ids=["another content", "no answer"])
    @pytest.mark.evidence("liars-lose-nothing")
    def test_the_source_keeps_its_replica_if_the_target_cannot_show_that_it_has_the_copy(
        self, content: str | None
    ) -> None:
        play = uneven()
        play.start()
        copy, *_ = play.tick()
        play.contents = {copy.target: content}
        play.copy(copy)
        for _ in range(200):
            play.tick()
            for node in play.held:
                play.beat(node)
        assert copy.chunk in play.held[copy.source]
        play.check()

    def test_the_target_s_word_may_come_before_the_source_s(self) -> None:
        play = uneven()
        play.start()
        copy, *_ = play.tick()
        play.copy(copy, answer=False)
        play.ask_and_hear()
        assert copy.chunk not in play.held[copy.source]
        play.cluster.answered(copy, copied=True)
        play.cluster.answered(copy, copied=False)
        play.check()

    def test_a_replica_that_came_to_be_needed_meanwhile_is_not_dropped(self) -> None:
        play = uneven()
        play.start()
        copy, *_ = play.tick()
        (other,) = {"dn-1", "dn-2"} - {copy.source}
        play.cluster.heartbeat(
            play.now_s, other, Heartbeat(play.usage(other), corrupt=[Replica(copy.chunk, 1, 10 * MIB)])
        )
        play.copy(copy)
        assert copy.chunk in play.held[copy.source]

    def test_a_replica_is_not_dropped_while_another_holder_is_silent(self) -> None:
        play = uneven()
        play.start()
        copy, *_ = play.tick()
        (other,) = {"dn-1", "dn-2"} - {copy.source}
        for _ in range(20):
            play.now_s += 0.25
            play.cluster.balancer.renew(play.now_s, "run")
            for node in set(play.held) - {other}:
                play.beat(node)
            play.cluster.tick(play.now_s, Garbage())
        play.copy(copy)
        assert copy.chunk in play.held[copy.source]

    def test_a_datanode_that_dies_costs_its_moves_alone(self) -> None:
        play = uneven()
        play.start(0.05)
        copies = play.tick()
        assert {copy.target for copy in copies} == {"dn-3", "dn-4"}
        play.cluster.register(play.now_s, registration("dn-3", "/a"))
        play.cluster.report(play.now_s, "dn-3", ReportChunks([], last=True))
        assert play.cluster.balancer.under_way == sum(copy.target != "dn-3" for copy in copies)
        for copy in copies:
            if copy.target != "dn-3":
                play.copy(copy)
        play.run_to_the_end()
        play.check()

    def test_copies_that_fail_again_and_again_end_the_run(self) -> None:
        play = uneven(chunks=90)
        play.start(0.001)
        failed = 0
        while play.phase is BalancePhase.RUNNING:
            for node in play.held:
                play.beat(node)
            for copy in play.tick():
                play.cluster.answered(copy, copied=False)
                failed += 1
            assert failed < 3 * balance_failures_max
        assert play.phase is BalancePhase.FAILING
        play.check()

    def test_an_overdue_one_is_given_up(self) -> None:
        play = uneven()
        play.start()
        before = len(play.tick())
        assert play.cluster.balancer.under_way == before
        play.now_s += 121.0
        for node in play.held:
            play.beat(node)
        play.cluster.balancer.cancel("run")
        play.tick()
        assert play.cluster.balancer.under_way == 0

    def test_nothing_is_moved_to_or_from_a_datanode_that_is_to_leave(self) -> None:
        play = uneven()
        play.cluster.set_mode("dn-3", Mode.MAINTENANCE)
        play.start(0.01)
        assert {copy.target for copy in play.run_to_the_end()} == {"dn-4"}


class TestTheRate:
    def test_each_datanode_sends_and_receives_no_more_than_it_allows(self) -> None:
        play = uneven()
        play.start(0.001, rate=20.0 * MIB)
        started_s = play.now_s
        moved: dict[str, int] = {}
        while play.phase is BalancePhase.RUNNING:
            for node in play.held:
                play.beat(node)
            for copy in play.tick():
                for node in (copy.source, copy.target):
                    moved[node] = moved.get(node, 0) + 10 * MIB
                    # A move that begins now counts its time from now.
                    assert moved[node] <= 20 * MIB * (play.now_s - started_s) + 2 * 10 * MIB
                assert copy.bytes_per_second == 20 * MIB
                play.copy(copy)
        assert sum(moved.values()) > 200 * MIB

    def test_a_datanode_takes_part_in_a_few_moves_at_a_time(self) -> None:
        play = uneven()
        play.start(0.001, rate=1e12)
        copies = [copy for _ in range(8) for copy in play.tick()]
        for node in play.held:
            assert sum(node in (copy.source, copy.target) for copy in copies) == 2


class TestThePlan:
    def test_datanodes_of_different_size_are_compared_by_their_share(self) -> None:
        plan = BalancePlan({"small": Fill(50, 100), "large": Fill(500, 1000)}, 0.01)
        assert plan.over() == plan.under() == []
        assert plan.left_bytes() == 0

    def test_balance_left_to_move_lies_outside_the_threshold(self) -> None:
        plan = BalancePlan({"a": Fill(80, 100), "b": Fill(20, 100)}, 0.1)
        assert (plan.over(), plan.under()) == (["a"], ["b"])
        assert plan.left_bytes() == 20
        plan.move("a", "b", 20)
        assert plan.left_bytes() == 0

    def test_one_without_capacity_takes_no_part(self) -> None:
        plan = BalancePlan({"a": Fill(80, 100), "broken": Fill(0, 0)}, 0.1)
        assert plan.sources() == [] and plan.over() == []

    @pytest.mark.parametrize("room", [chunk_bytes_max - 1, 0])
    def test_a_datanode_without_room_for_a_chunk_gets_none(self, room: int) -> None:
        play = uneven()
        for node in ("dn-3", "dn-4"):
            full = Usage(CAPACITY, CAPACITY - room, room, live_bytes=0)
            play.cluster.heartbeat(play.now_s, node, Heartbeat(full))
        play.start(0.01)
        assert play.tick() == []
