"""The contract of every journal: in memory, and in a real member of etcd."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from support.etcd import EtcdMembers, etcd_members
from support.waiting import wait_until

from peacefs.coordinator.journal.etcd import journal_part_bytes_max
from peacefs.coordinator.journal.memory import JournalInMemory, JournalServer
from peacefs.coordinator.journal.port import Entry, Fenced, Journal, JournalIdentity, Look, Member, Standing

A, B = Member("a:9870", "a:9820"), Member("b:9870", "b:9820")
MINE = JournalIdentity("cluster-1", "journal-1")

_prefixes = itertools.count(1)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMembers]:
    with etcd_members(tmp_path_factory.mktemp("etcd")) as members:
        yield members


@pytest.fixture(params=["memory", "etcd"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[[], Journal]]:
    """Return another coordinator's connection to the same, empty journal."""
    if request.param == "memory":
        make: Callable[[], Journal] = partial(JournalInMemory, JournalServer(time.monotonic))
    else:
        members: EtcdMembers = request.getfixturevalue("etcd")
        make = partial(members.journal, f"/test-{next(_prefixes)}")
    opened: list[Journal] = []

    def connected() -> Journal:
        opened.append(make())
        return opened[-1]

    yield connected
    for journal in opened:
        journal.close()


def test_identity_is_that_of_who_came_first(connect: Callable[[], Journal]) -> None:
    one, other = connect(), connect()
    assert one.identity() is None
    assert one.begin(MINE) == MINE
    assert other.begin(JournalIdentity("cluster-2", "journal-2")) == MINE
    assert other.identity() == MINE


def test_identity_changes_when_the_journal_is_discarded(connect: Callable[[], Journal]) -> None:
    journal = connect()
    journal.begin(MINE)
    assert journal.take(0, 1)
    journal.append(1, 1, b"entry")
    journal.discard(JournalIdentity("cluster-1", "another"))
    assert journal.identity() == MINE
    journal.discard(MINE)
    assert journal.identity() is None
    assert journal.read(0, 10) == []
    # No number is ever drawn twice.
    assert journal.epoch() == 1


def test_epoch_belongs_to_one_alone(connect: Callable[[], Journal]) -> None:
    one, other = connect(), connect()
    assert one.epoch() == 0
    assert one.take(0, 5)
    # Repeat it, as after a lost answer; and try as another coordinator that read the same state.
    assert one.take(0, 5)
    assert not other.take(0, 5)
    assert other.epoch() == 5
    assert other.take(5, 6)
    assert not one.take(0, 5)


def test_entries_are_read_as_they_were_appended(connect: Callable[[], Journal]) -> None:
    journal, standby = connect(), connect()
    assert journal.ends() is None
    journal.take(0, 1)
    for number in range(1, 8):
        journal.append(1, number, b"entry %d" % number)
    assert standby.read(0, 3) == [Entry(1, b"entry 1"), Entry(2, b"entry 2"), Entry(3, b"entry 3")]
    assert [entry.number for entry in standby.read(3, 100)] == [4, 5, 6, 7]
    assert standby.read(7, 100) == []
    assert standby.ends() == (Entry(1, b"entry 1"), Entry(7, b"entry 7"))


def test_look_shows_entries_leader_and_epoch_at_once(connect: Callable[[], Journal]) -> None:
    journal, standby = connect(), connect()
    assert standby.look(0, 10) == Look([], None, 0)
    assert journal.take(0, 3)
    assert journal.campaign(A, 60)
    long = bytes(journal_part_bytes_max + 1)
    journal.append(3, 1, b"one")
    journal.append(3, 2, long)
    journal.append(3, 3, b"three")
    assert standby.look(0, 10) == Look([Entry(1, b"one"), Entry(2, long), Entry(3, b"three")], A, 3)
    assert standby.look(2, 10) == Look([Entry(3, b"three")], A, 3)
    assert standby.look(0, 1).entries == [Entry(1, b"one")]


def test_entry_that_is_repeated_is_there_once(connect: Callable[[], Journal]) -> None:
    journal = connect()
    journal.take(0, 1)
    journal.append(1, 1, b"entry")
    journal.append(1, 1, b"entry")
    assert journal.read(0, 10) == [Entry(1, b"entry")]
    with pytest.raises(Fenced):
        journal.append(1, 1, b"another")


def test_entry_of_an_epoch_that_is_over_is_refused(connect: Callable[[], Journal]) -> None:
    old, new = connect(), connect()
    old.take(0, 1)
    old.append(1, 1, b"the old one's")
    assert new.take(1, 2)
    with pytest.raises(Fenced):
        old.append(1, 2, b"too late")
    new.append(2, 2, b"the new one's")
    assert [entry.data for entry in new.read(0, 10)] == [b"the old one's", b"the new one's"]


def test_entry_longer_than_a_request_comes_back_whole(connect: Callable[[], Journal]) -> None:
    journal = connect()
    journal.take(0, 1)
    long = bytes(range(256)) * (2 * journal_part_bytes_max // 256) + b"the end"
    journal.append(1, 1, long)
    journal.append(1, 2, b"short")
    assert journal.read(0, 10) == [Entry(1, long), Entry(2, b"short")]
    journal.trim(2)
    assert journal.read(0, 10) == [Entry(2, b"short")]


def test_entries_that_were_trimmed_are_gone(connect: Callable[[], Journal]) -> None:
    journal = connect()
    journal.take(0, 1)
    for number in range(1, 6):
        journal.append(1, number, b"entry")
    journal.trim(4)
    assert [entry.number for entry in journal.read(0, 10)] == [4, 5]


def test_leader_is_one_until_it_resigns(connect: Callable[[], Journal]) -> None:
    one, other = connect(), connect()
    assert one.leader() is None
    assert one.campaign(A, 60)
    assert one.campaign(A, 60)
    assert not other.campaign(B, 60)
    assert other.leader() == A
    assert one.renew()
    assert not other.renew()
    other.resign()
    assert other.leader() == A
    one.resign()
    assert other.campaign(B, 60)
    assert one.leader() == B


def test_leader_is_nobody_when_the_lease_has_ended(connect: Callable[[], Journal]) -> None:
    one, other = connect(), connect()
    assert one.campaign(A, 1)
    wait_until(lambda: other.campaign(B, 60), "the lease ends")
    assert not one.renew()
    assert not one.campaign(A, 60)


def test_standings_are_of_those_that_state_them(connect: Callable[[], Journal]) -> None:
    one, other = connect(), connect()
    one.stand(Standing(A, 7, 6, True), 60)
    other.stand(Standing(B, 5, 5), 60)
    one.stand(Standing(A, 8, 7, True), 60)
    assert sorted(other.standings(), key=lambda each: each.member.name) == [
        Standing(A, 8, 7, True),
        Standing(B, 5, 5),
    ]
