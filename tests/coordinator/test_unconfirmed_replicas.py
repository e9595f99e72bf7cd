"""Unconfirmed replicas count until the time by which their datanode must have reported them."""

from __future__ import annotations

import pytest
from support.play import USAGE, Play, record

from peacefs.coordinator.limits import unconfirmed_replica_kept_s
from peacefs.protocol.messages import Heartbeat, Replica

_REPLICA = Replica(7, 1, 1000)
_NODES = ("dn-1", "dn-2", "dn-3")


def say(play: Play, node: str, *, added: bool = False, removed: bool = False) -> None:
    beat = Heartbeat(USAGE, added=[_REPLICA] if added else [], removed=[_REPLICA] if removed else [])
    play.cluster.heartbeat(play.now_s, node, beat)


def holders(play: Play) -> set[str]:
    state = play.cluster.chunks.get(7)
    assert state is not None
    return set(state.holders)


@pytest.fixture
def play() -> Play:
    play = Play()
    play.join(*_NODES)
    play.open_for_business()
    play.let_pass(1.0)
    return play


@pytest.mark.evidence("chunk-map-is-true")
def test_a_receipt_whose_replica_was_lost_before_the_file_was_completed_counts_for_a_while_only(
    play: Play,
) -> None:
    """Its disk failed in between, and nobody knew the chunk when that was reported."""
    for node in _NODES:
        say(play, node, added=True)
    say(play, "dn-3", removed=True)
    play.cluster.published([record(7, hint=_NODES)])
    play.let_pass(unconfirmed_replica_kept_s / 2)
    assert holders(play) == set(_NODES)
    play.let_pass(unconfirmed_replica_kept_s)
    assert holders(play) == {"dn-1", "dn-2"}
    assert 7 in play.cluster.chunks.under


def test_unconfirmed_replica_counts_until_the_heartbeat_that_confirms_it_and_then_for_good(play: Play) -> None:
    play.cluster.published([record(7, hint=_NODES)])
    for node in _NODES:
        say(play, node, added=True)
    play.let_pass(3 * unconfirmed_replica_kept_s)
    assert holders(play) == set(_NODES)
    assert len(play.cluster.chunks.unconfirmed) == 0


def test_a_datanode_that_is_silent_for_a_while_may_still_confirm(play: Play) -> None:
    play.beating.discard("dn-3")
    play.let_pass(unconfirmed_replica_kept_s / 2)
    play.cluster.published([record(7, hint=_NODES)])
    for node in ("dn-1", "dn-2"):
        say(play, node, added=True)
    play.let_pass(unconfirmed_replica_kept_s / 2 - 1)
    assert holders(play) == set(_NODES)
    say(play, "dn-3", added=True)
    play.beating.add("dn-3")
    play.let_pass(3 * unconfirmed_replica_kept_s)
    assert holders(play) == set(_NODES)
