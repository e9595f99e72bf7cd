"""A coordinator opens a store that belongs to the journal, or is told why it cannot."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from peacefs.coordinator.failover.joining import Joining
from peacefs.coordinator.journal.memory import JournalInMemory, JournalServer, Mishap
from peacefs.coordinator.journal.port import JournalIdentity, Member
from peacefs.coordinator.journal.writer import JournalWriter, content_of
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.journal_chain import JournalDiffers
from peacefs.coordinator.metadata.log.entry import checksum_of
from peacefs.coordinator.metadata.sqlite import backup, exact_copies
from peacefs.coordinator.metadata.sqlite.connections import StoresDiffer
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.metadata.store import Metadata
from peacefs.coordinator.metadata.tables import INODE
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.errors import PeerRefused, StartupError

NOW_S = time.monotonic()


def opening(store: Path) -> Callable[[JournalWriter], Metadata]:
    """Return a function that opens a store to follow a journal."""
    return lambda writer: open_store(store, owner="root", journal=writer)


class Cluster:
    """A journal, and the directories of its coordinators. `waited` is called while one waits."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.server = JournalServer(lambda: NOW_S)
        self.opened: list[Metadata] = []
        self.waited: list[Callable[[], object]] = []
        self.waits = 0

    def directory(self, name: str) -> Path:
        path = self.root / name
        path.mkdir(exist_ok=True)
        return path

    def store(self, name: str) -> Path:
        return self.directory(name) / "metadata.sqlite"

    def join(self, name: str, mishap: Callable[[str], Mishap] = lambda call: Mishap.NONE) -> Metadata:
        journal = JournalInMemory(self.server, mishap)
        joining = Joining(
            self.store(name),
            JournalWriter(journal),
            Member(name),
            opening(self.store(name)),
            self,
            sleep=self._wait,
        )
        self.opened.append(joining.join().metadata)
        return self.opened[-1]

    def _wait(self, seconds: float) -> None:
        self.waits += 1
        assert self.waits < 100, "a coordinator waits for what nobody will do"
        if self.waited:
            self.waited.pop(0)()

    def greet(self, leader: Member, cluster: str) -> None:
        """Find and authenticate the leader."""

    def copy(self, leader: Member, cluster: str, target: Path) -> None:
        with exact_copies.make(self.store(leader.name)) as copy:
            target.write_bytes(copy.read())

    def lead(self, name: str) -> Metadata:
        """Let a coordinator join and lead, as failover does."""
        journal = JournalInMemory(self.server)
        writer = JournalWriter(journal)
        joining = Joining(self.store(name), writer, Member(name), opening(self.store(name)), self)
        metadata = joining.join().metadata
        assert journal.campaign(Member(name), 60)
        epoch = journal.epoch()
        assert writer.take(epoch, max(epoch, metadata.epoch) + 1)
        metadata.begin_epoch(above=max(epoch, metadata.epoch))
        self.opened.append(metadata)
        return metadata

    def close(self) -> None:
        for metadata in self.opened:
            metadata.close()
        self.opened.clear()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


def make_directory(metadata: Metadata, path: str) -> None:
    run_now(metadata, lambda tx: namespace.mkdirs(tx, parse_path(path), "ann", 0o755, 1))


def names(metadata: Metadata) -> list[str]:
    return [each.name for each in namespace.list_page(metadata.reader(), parse_path("/"), None, 100).entries]


def test_first_coordinator_begins_the_journal_and_the_second_copies_its_store(cluster: Cluster) -> None:
    leader = cluster.lead("a")
    make_directory(leader, "/before")
    standby = cluster.join("b")
    assert standby.cluster_id == leader.cluster_id
    assert standby.journal_place() == leader.journal_place()
    assert names(standby) == ["before"]
    # It is not a backup, so it keeps no chunks from deletion.
    assert not standby.reader().gc_floor_held()


def test_second_coordinator_waits_until_the_first_leads(cluster: Cluster) -> None:
    cluster.join("a").close()
    cluster.opened.clear()
    cluster.waited = [lambda: None, lambda: make_directory(cluster.lead("a"), "/d")]
    assert names(cluster.join("b")) == ["d"]


def test_journal_that_was_begun_halfway_is_begun_again(cluster: Cluster) -> None:
    """The process ends after the store follows the journal, and before the journal exists."""

    class Ended(Exception):
        pass

    def end(call: str) -> Mishap:
        if call == "begin":
            raise Ended
        return Mishap.NONE

    with pytest.raises(Ended):
        cluster.join("a", end)
    cluster.server.leader = None
    assert cluster.join("a").journal_place().journal == cluster.server.identity.journal  # type: ignore[union-attr]


def test_store_of_another_cluster_is_refused(cluster: Cluster) -> None:
    cluster.server.identity = JournalIdentity("another", "its journal")
    open_store(cluster.store("a"), owner="root").close()
    with pytest.raises(StartupError, match="belongs to cluster another"):
        cluster.join("a")


def test_store_that_has_a_journal_is_refused_without_it_until_it_has_left(cluster: Cluster) -> None:
    make_directory(cluster.lead("a"), "/kept")
    cluster.close()
    with pytest.raises(StartupError, match="leave-journal"):
        open_store(cluster.store("a"), owner="root")
    assert exact_copies.leave_journal(cluster.store("a"))
    metadata = open_store(cluster.store("a"), owner="root")
    assert names(metadata) == ["kept"]
    metadata.close()
    # And it cannot come back as if nothing had happened.
    with pytest.raises(StartupError, match="no longer, a part of this journal"):
        cluster.join("a")


def test_restored_backup_beside_a_living_journal_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    make_directory(cluster.lead("a"), "/kept")
    backup.back_up(cluster.store("a"), tmp_path / "backup", lambda done, total: None)
    cluster.close()
    backup.restore(
        tmp_path / "backup", cluster.store("a"), lambda done, total: None, random.Random(1), replace=True
    )
    with pytest.raises(StartupError, match="it was restored"):
        cluster.join("a")


def test_coordinator_with_another_secret_than_the_leader_is_refused_before_it_could_lead(cluster: Cluster) -> None:
    cluster.lead("a")
    journal = JournalInMemory(cluster.server)

    class Refusing:
        def greet(self, leader: Member, of_cluster: str) -> None:
            raise PeerRefused("it does not know the secret")

        def copy(self, leader: Member, of_cluster: str, target: Path) -> None:
            self.greet(leader, of_cluster)

    def join() -> None:
        Joining(
            cluster.store("b"),
            JournalWriter(journal),
            Member("b"),
            opening(cluster.store("b")),
            Refusing(),
        ).join()

    # One has an older store, and one has none.
    cluster.join("b").close()
    with pytest.raises(StartupError, match="a, which leads, refuses this coordinator: it does not"):
        join()
    for file in cluster.directory("b").iterdir():
        file.unlink()

    with pytest.raises(StartupError, match="does not know the secret"):
        join()


def test_store_whose_journal_is_gone_is_refused(cluster: Cluster) -> None:
    make_directory(cluster.lead("a"), "/kept")
    cluster.close()
    cluster.server = JournalServer(lambda: NOW_S)
    with pytest.raises(StartupError, match="a journal that is not there"):
        cluster.join("a")


def put_back(server: JournalServer, number: int, epoch: int) -> None:
    """Reset etcd to the state when that entry was its last."""
    server.entries = {each: entry for each, entry in server.entries.items() if each <= number}
    server.epoch, server.epoch_owner, server.leader = epoch, None, None


@pytest.mark.evidence("etcd-put-back")
@pytest.mark.parametrize("more", [1, 3, 5])
def test_store_with_entries_that_etcd_lacks_is_set_aside_when_another_one_has_led(
    cluster: Cluster, more: int
) -> None:
    """Coordinator a has three entries that etcd lost; b leads meanwhile and adds fewer, as many, or more."""
    leader = cluster.lead("a")
    make_directory(leader, "/both")
    cluster.join("b")
    number, epoch = leader.journal_place().number, cluster.server.epoch
    for name in ("x", "y", "z"):
        make_directory(leader, f"/lost-{name}")
    cluster.close()
    put_back(cluster.server, number, epoch)
    other = cluster.lead("b")
    # Its first entry begins an epoch.
    for made in range(more):
        make_directory(other, f"/made-{made}")
    has_all = more + 1 >= 3
    if has_all:
        again = cluster.join("a")
        again.apply(JournalInMemory(cluster.server).read(again.journal_place().number, 100))
        assert names(again) == names(other) == ["both", *(f"made-{made}" for made in range(more))]
        assert (cluster.directory("a") / "metadata.sqlite.replaced").exists(), "an operator may look for them"
    else:
        # Nothing with its number exists yet, so it notices with the next entry.
        again = cluster.join("a")
        for made in range(3):
            make_directory(other, f"/later-{made}")
        with pytest.raises(JournalDiffers, match="etcd was put back"):
            again.apply(JournalInMemory(cluster.server).read(again.read_after, 100))
        assert "later-2" not in names(again)


@pytest.mark.evidence("stores-differ")
def test_standby_that_differs_is_refused_at_each_start_and_the_leader_shows_why(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peacefs.coordinator.metadata.sqlite.image.digest_interval_entries", 5)
    leader = cluster.lead("a")
    make_directory(leader, "/d")
    standby = cluster.join("b")
    for number in range(20):
        make_directory(leader, f"/{number}")
        leader.catch_up()
        leader.tend(idle=True)
    first, *others = JournalInMemory(cluster.server).read(standby.read_after, 100)
    standby.apply([first])
    # A memory fault changes one written row.
    standby.catch_up()
    written = content_of(others[0])
    content = msgspec.msgpack.decode(written)
    row = next(row for table, row in content[4] if table == INODE and row[0] > 1)
    row[4] ^= 1
    standby.apply([others[0]._replace(data=others[0].data[:8] + msgspec.msgpack.encode(content))])
    standby._chain.sum = checksum_of(written)
    standby.apply(others[1:])
    with pytest.raises(StoresDiffer, match="is not what the leader has"):
        standby.catch_up()
    standby.close()
    for _ in range(2):
        with pytest.raises(StartupError, match=r"after entry 5 of the journal .* move this one away and start"):
            cluster.join("b")
    (shown,) = JournalInMemory(cluster.server).standings()
    assert shown.member == Member("b") and "after entry 5 of the journal" in shown.problem and not shown.is_warm
    # In the other case, the operator finds that the leader's store is damaged, and continues with this one alone.
    assert exact_copies.leave_journal(cluster.store("b"))
    alone = open_store(cluster.store("b"), owner="root")
    assert names(alone) == sorted(["d", *map(str, range(20))])
    alone.close()


def test_store_that_is_far_behind_is_copied_anew(cluster: Cluster) -> None:
    leader = cluster.lead("a")
    cluster.join("b").close()
    for number in range(5):
        make_directory(leader, f"/{number}")
    JournalInMemory(cluster.server).trim(leader.journal_place().number)
    standby = cluster.join("b")
    assert names(standby) == ["0", "1", "2", "3", "4"]
    assert standby.journal_place() == leader.journal_place()
    assert (cluster.directory("b") / "metadata.sqlite.replaced").exists()
