"""A datanode that announces its stop is excluded at once, and counts again when it is back."""

from __future__ import annotations

from support.play import USAGE, Play, record, registration

from peacefs.coordinator.cluster.membership import State
from peacefs.protocol.limits import dead_after_s
from peacefs.protocol.messages import Heartbeat, ReportChunks

NODES = ("n1", "n2", "n3", "n4")


def places(play: Play) -> set[str]:
    used: set[str] = set()
    for chunk in range(1000, 1040):
        used |= {node.id for node in play.cluster.place(play.now_s, chunk, None, 2, frozenset(), 60.0)}
        play.cluster.write_ended(chunk)
    return used


def test_stopping_datanode_gets_nothing_new_from_then_on_whatever_it_says_besides() -> None:
    play = Play()
    play.join(*NODES)
    play.open_for_business()
    assert places(play) == set(NODES)
    play.cluster.heartbeat(play.now_s, "n2", Heartbeat(USAGE, stopping=True))
    assert places(play) == set(NODES) - {"n2"}
    # The heartbeat thread may report once more.
    play.cluster.heartbeat(play.now_s, "n2", Heartbeat(USAGE))
    play.let_pass(1)
    assert places(play) == set(NODES) - {"n2"}


def test_stopping_datanode_is_read_last_and_repaired_only_when_it_stays_away() -> None:
    play = Play()
    play.join(*NODES)
    play.open_for_business()
    play.publish([record(1, replication=2, hint=("n1", "n2"))])
    play.cluster.heartbeat(play.now_s, "n1", Heartbeat(USAGE, stopping=True))
    play.beating.discard("n1")
    assert next(node.id for node in play.cluster.locations(1, "n1.example")) == "n2"
    assert [copy for ticked in play.let_pass(dead_after_s - 2) for copy in ticked.copies] == []
    assert [copy.source for ticked in play.let_pass(4) for copy in ticked.copies] == ["n2"]


def test_stopping_datanode_that_comes_back_counts_again() -> None:
    play = Play()
    play.join(*NODES)
    play.open_for_business()
    play.cluster.heartbeat(play.now_s, "n2", Heartbeat(USAGE, stopping=True))
    play.cluster.register(play.now_s, registration("n2"))
    play.cluster.report(play.now_s, "n2", ReportChunks([], last=True))
    node = play.cluster.members.get("n2")
    assert node is not None and node.state is State.ALIVE
    assert places(play) == set(NODES)
