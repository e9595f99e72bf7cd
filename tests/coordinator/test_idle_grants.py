"""A stalled producer delays nobody: its pipeline stays, and others use its capacity until it continues."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scheduled import Scheduled

from peacefs.coordinator.scheduling.grant_monitor import idle_grant_look_s
from peacefs.coordinator.scheduling.write_sets import InFlight
from peacefs.peace.policies.express import ExpressPolicy
from peacefs.protocol.limits import MIB


class Producer:
    """A writer of one granted chunk, as the head sees it."""

    def __init__(self, play: Scheduled, grant: InFlight) -> None:
        self.play = play
        self.grant = grant
        self.received = 0
        self.waited_s = 0.0

    def brings(self, bytes_s: float, waits: float) -> None:
        """Receive so many bytes per second until the next check; the head waits for this share of the time."""
        self.play.now_s += idle_grant_look_s
        self.received += int(bytes_s * idle_grant_look_s)
        self.waited_s += waits * idle_grant_look_s
        assert self.grant.nodes[0] in self.play.tick()
        self.look()

    def look(self) -> None:
        self.play.has(self.grant.nodes[0], self.grant, received=self.received, waited_s=self.waited_s)


def one_that_holds_all() -> tuple[Scheduled, Producer]:
    """Return three datanodes with capacity for one chunk each, all taken; another writer waits."""
    play = Scheduled(nodes=3, streams_per_node=1)
    (grant,) = play.state("slow", 1, chunk_bytes=64 * MIB)
    assert play.state("waits", 2) == []
    return play, Producer(play, grant)


@pytest.mark.evidence("idle-writer")
def test_idle_grant_lends_its_room_to_others_and_has_it_again_when_it_writes() -> None:
    play, slow = one_that_holds_all()
    slow.brings(1000.0, 0.999)
    assert not play.granted("waits"), "one look tells nothing"
    slow.brings(1000.0, 0.999)
    assert slow.grant.is_idle
    (first,) = play.granted("waits")
    # It writes normally: nothing is granted until there is capacity for both.
    slow.brings(30e6, 0.0)
    assert not slow.grant.is_idle
    play.ends(first)
    assert not play.granted("waits")
    play.ends(slow.grant)
    assert len(play.granted("waits")) == 1
    play.finish_all()
    assert all(taken == 0 for taken, _ in play.loads())


@pytest.mark.evidence("idle-writer")
def test_one_that_is_slow_because_its_chain_is_keeps_its_room() -> None:
    play, slow = one_that_holds_all()
    for _ in range(20):
        slow.brings(1000.0, 0.5)
    assert not slow.grant.is_idle and not play.granted("waits")


def test_one_that_is_waited_for_but_brings_much_keeps_its_room() -> None:
    play, slow = one_that_holds_all()
    for _ in range(20):
        slow.brings(20e6, 0.95)
    assert not slow.grant.is_idle and not play.granted("waits")


def test_its_end_gives_nothing_back_twice() -> None:
    play, slow = one_that_holds_all()
    slow.brings(0.0, 1.0)
    slow.brings(0.0, 1.0)
    (first,) = play.granted("waits")
    play.ends(slow.grant)
    assert play.granted("waits") == [first] and play.busiest() == 1
    play.ends(first)
    assert len(play.granted("waits")) == 1


def test_idle_grant_is_unknown_to_another_policy() -> None:
    play, slow = one_that_holds_all()
    slow.brings(0.0, 1.0)
    slow.brings(0.0, 1.0)
    play.change_policy("express")
    (first,) = play.granted("waits")
    # Its first number is for a chunk of its own: grants that it never heard of end nothing.
    play.ends(slow.grant)
    assert play.granted("waits") == [first]
    play.finish_all()


def test_idle_grant_is_none_that_was_begun_anew_or_seen_twice() -> None:
    play, slow = one_that_holds_all()
    slow.brings(0.0, 1.0)
    for _ in range(5):
        slow.look()
    assert not slow.grant.is_idle
    for _ in range(5):
        # The writer's request timed out, and it sends the chunk again through the same head.
        play.now_s += idle_grant_look_s
        slow.grant.granted_s = play.now_s
        slow.look()
    assert not slow.grant.is_idle


def test_nobody_but_the_head_tells_how_far_it_is() -> None:
    play, slow = one_that_holds_all()
    for _ in range(4):
        play.now_s += idle_grant_look_s
        for node in slow.grant.nodes[1:]:
            play.has(node, slow.grant, received=0, waited_s=play.now_s - slow.grant.granted_s)
    assert not slow.grant.is_idle


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.sampled_from("lwxs")), max_size=40))
def test_idle_grants_give_their_slots_back_once(events: list[tuple[int, bool, str]]) -> None:
    play = Scheduled(nodes=4, streams_per_node=2)
    producers: dict[int, Producer] = {}
    for which, is_slow, event in events:
        if event == "s":
            play.state(f"w{which}", 3, chunk_bytes=64 * MIB)
        grants = list(play.scheduling.grants)
        if not grants:
            continue
        grant = grants[which % len(grants)]
        producer = producers.setdefault(grant.chunk, Producer(play, grant))
        if event == "l":
            play.now_s += idle_grant_look_s
            producer.received += 0 if is_slow else 10**9
            producer.waited_s += idle_grant_look_s if is_slow else 0.0
            producer.look()
        elif event in "wx":
            play.ends(grant, completed=event == "w")
        counted: dict[str, int] = {}
        for each in play.scheduling.grants:
            for node in () if each.is_idle else each.nodes:
                counted[node] = counted.get(node, 0) + 1
        policy = play.scheduling._policy
        assert isinstance(policy, ExpressPolicy)
        assert {name: taken for name, (taken, _) in policy.loads().slots.items() if taken} == counted
    for grant in list(play.scheduling.grants):
        play.ends(grant)
    play.finish_all()
    assert all(taken == 0 for taken, _ in play.loads())
