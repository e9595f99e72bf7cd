"""A datanode among several coordinators: whom it obeys, and who is told what."""

from __future__ import annotations

from peacefs.datanode.control.coordinator_links import CoordinatorLinks
from peacefs.datanode.store.replica_changes import SharedChanges
from peacefs.protocol.credentials import Credential
from peacefs.protocol.handshake import Identity
from peacefs.protocol.messages import Replica
from peacefs.protocol.tokens import Signer


def links_of(count: int, epoch_seen: int = 0) -> CoordinatorLinks:
    """Links that were not started."""
    me = Identity("cluster", "datanode", "dn-1", Signer(b"s" * 32))
    addresses = [("127.0.0.1", port + 1) for port in range(count)]
    return CoordinatorLinks(addresses, me, Credential.make(), None, SharedChanges(), epoch_seen)  # type: ignore


def test_orders_of_an_epoch_that_is_over_are_refused() -> None:
    links = links_of(2)
    old, new = links._links
    assert links.heard(old, 4, leads=True)
    assert links.may_order(4)
    assert links.heard(new, 5, leads=True)
    assert not links.may_order(4)
    assert links.may_order(5)
    # The old one goes on as if nothing had happened, and is not believed.
    assert not links.heard(old, 4, leads=True)
    assert links.epoch == 5


def test_orders_of_an_epoch_heard_before_a_restart_are_the_least() -> None:
    links = links_of(2, epoch_seen=9)
    assert not links.heard(links._links[0], 8, leads=True)
    assert not links.may_order(8)
    assert not links.may_order(0)


def test_standby_is_not_taken_for_the_leader_whatever_epoch_it_names() -> None:
    links = links_of(2)
    assert not links.heard(links._links[1], 7, leads=False)
    assert links.epoch == 0


def test_order_without_an_epoch_is_obeyed_where_there_is_one_coordinator() -> None:
    links = links_of(1, epoch_seen=3)
    assert links.may_order(0)


def test_changes_are_told_to_every_coordinator_in_its_own_time() -> None:
    changes = SharedChanges()
    one, other = changes.another(), changes.another()
    changes.added(Replica(1, 1, 10))
    assert one.take() == ([Replica(1, 1, 10)], [], [])
    changes.removed(Replica(1, 1, 10))
    assert one.take() == ([], [Replica(1, 1, 10)], [])
    assert other.take() == ([], [Replica(1, 1, 10)], [])
