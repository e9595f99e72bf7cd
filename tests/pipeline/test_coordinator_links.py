"""A datanode with several coordinators: which one it obeys, and what it tells each."""

from __future__ import annotations

from peacefs.datanode.control.obedience import Obedience
from peacefs.datanode.store.replica_changes import SharedChanges
from peacefs.protocol.messages import DeleteChunks, Replica


def test_orders_of_an_epoch_that_is_over_are_refused() -> None:
    obedience = Obedience(2, 0)
    assert obedience.heard("old", 4, leads=True)
    assert obedience.may_order(4)
    assert obedience.heard("new", 5, leads=True)
    assert not obedience.begin(DeleteChunks([], epoch=4))
    assert obedience.begin(DeleteChunks([], epoch=5))
    # The old leader continues as if nothing had happened, and is ignored.
    assert not obedience.heard("old", 4, leads=True)
    assert (obedience.leader, obedience.epoch) == ("new", 5)


def test_orders_of_an_epoch_heard_before_a_restart_are_the_least() -> None:
    obedience = Obedience(2, 9)
    assert not obedience.heard("old", 8, leads=True)
    assert not obedience.may_order(8)
    assert not obedience.may_order(0)


def test_standby_is_not_taken_for_the_leader_whatever_epoch_it_names() -> None:
    obedience = Obedience(2, 0)
    assert not obedience.heard("standby", 7, leads=False)
    assert obedience.epoch == 0


def test_epoch_is_said_to_be_known_when_no_order_of_an_earlier_one_is_under_way() -> None:
    obedience = Obedience(2, 0)
    obedience.heard("old", 4, leads=True)
    queued, other = DeleteChunks([Replica(1, 1, 10)], epoch=4), DeleteChunks([Replica(2, 1, 10)], epoch=4)
    assert obedience.begin(queued)
    assert obedience.begin(other)
    assert obedience.settled == 4
    obedience.heard("new", 5, leads=True)
    # It may drop a replica that it proves to the new leader.
    assert (obedience.epoch, obedience.settled) == (5, 4)
    obedience.end(other)
    assert obedience.settled == 4
    obedience.end(queued)
    assert obedience.settled == 5


def test_order_without_an_epoch_is_obeyed_where_there_is_one_coordinator() -> None:
    assert Obedience(1, 3).may_order(0)


def test_changes_are_told_to_every_coordinator_in_its_own_time() -> None:
    changes = SharedChanges()
    one, other = changes.another(), changes.another()
    changes.added(Replica(1, 1, 10))
    assert one.take() == ([Replica(1, 1, 10)], [], [])
    changes.removed(Replica(1, 1, 10))
    assert one.take() == ([], [Replica(1, 1, 10)], [])
    assert other.take() == ([], [Replica(1, 1, 10)], [])
