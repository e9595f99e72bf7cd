"""A datanode's state by the length of its silence."""

from __future__ import annotations

import pytest
from msgspec import structs
from support.play import registration

from peacefs.coordinator.cluster.membership import Membership, State

# Written by hand from the design: seconds of silence, and the resulting state.
_JUDGEMENTS = [(0.0, "alive"), (2.9, "alive"), (3.0, "suspect"), (9.9, "suspect"), (10.0, "dead"), (500.0, "dead")]


def silent_for(seconds: float) -> Membership:
    members = Membership()
    members.register(0.0, registration("dn-1"))
    now_s = 0.0
    while now_s < seconds:
        now_s = min(now_s + 0.5, seconds)
        members.tick(now_s)
    members.tick(seconds)
    return members


@pytest.mark.parametrize(("seconds", "judgement"), _JUDGEMENTS)
def test_silence_makes_a_datanode_suspect_and_then_dead(seconds: float, judgement: str) -> None:
    node = silent_for(seconds).get("dn-1")
    assert node is not None
    assert node.state.value == judgement


def test_a_suspect_that_speaks_is_alive_again() -> None:
    members = silent_for(5.0)
    assert members.alive() == []
    assert members.heard(5.0, "dn-1")
    assert [node.id for node in members.alive()] == ["dn-1"]


def test_a_dead_datanode_must_register_before_it_counts() -> None:
    members = silent_for(20.0)
    assert not members.heard(20.0, "dn-1")
    assert members.alive() == []
    members.register(20.0, registration("dn-1"))
    assert [node.id for node in members.alive()] == ["dn-1"]


def test_a_stranger_is_asked_to_register() -> None:
    assert not Membership().heard(0.0, "dn-9")


@pytest.mark.evidence("clocks-jump")
def test_a_coordinator_that_was_paused_blames_nobody() -> None:
    members = Membership()
    members.register(0.0, registration("dn-1"))
    members.tick(0.5)
    assert members.tick(60.0) == []
    node = members.get("dn-1")
    assert node is not None and node.state is State.ALIVE


def test_every_change_is_told_once() -> None:
    members = Membership()
    members.register(0.0, registration("dn-1"))
    told = [
        (transition.before.value, transition.after.value)
        for half_seconds in range(40)
        for transition in members.tick(half_seconds / 2)
    ]
    assert told == [("alive", "suspect"), ("suspect", "dead")]


def test_datanode_that_registers_from_elsewhere_is_found_there_alone() -> None:
    members = Membership()
    for number in (2, 1):
        members.register(0.0, registration(f"dn-{number}"))
    assert [node.id for node in members.all()] == ["dn-1", "dn-2"]
    before = members.get("dn-1")
    assert before is not None
    host = before.registration.data_host
    assert before in members.on_host(host) and not members.on_host("elsewhere")
    members.register(1.0, structs.replace(registration("dn-1"), data_host="elsewhere"))
    (moved,) = members.on_host("elsewhere")
    assert (moved.id, moved is before) == ("dn-1", False)
    assert moved in members.all() and before not in members.all()
    assert before not in members.on_host(host)
