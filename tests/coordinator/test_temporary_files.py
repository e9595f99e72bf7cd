"""Temporary files of dead writers: recognised by name, deleted only when nobody can need them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.immediate_commit import CommitsAtOnce, durable_at_once
from support.no_links import NoLinks
from support.play import Play

from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.model import Lease, RenameMode
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace import snapshots
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.leases import Leases
from peacefs.coordinator.operations.temporary_files import TemporaryFiles, temporary_watched_s
from peacefs.protocol.messages import Receipt, WrittenChunk
from peacefs.protocol.new_file import NewFile
from peacefs.protocol.tokens import Signer
from peacefs.protocol.values.temporary_names import wanted_name

NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=30)
UUIDS = st.uuids(version=4).map(str)
HOUR_S = 3600.0
SPARK = ".0.1d3c0a5e-8f6b-4c0e-9a5d-3a1b2c3d4e5f.tmp"


# -- names -----------------------------------------------------------------------------------------


@given(NAMES, UUIDS, st.none() | st.integers(0, 2**63 - 1))
def test_temporary_name_of_spark_is_recognised_with_its_final_name(
    name: str, unique: str, task: int | None
) -> None:
    suffix = "" if task is None else f".TID{task}"
    assert wanted_name(f".{name}.{unique}{suffix}.tmp") == name


@given(NAMES)
def test_temporary_name_of_hadoops_copy_is_recognised(name: str) -> None:
    assert wanted_name(f"{name}._COPYING_") == name


@given(NAMES, UUIDS, st.data())
def test_a_name_in_which_one_character_is_another_is_told_only_if_it_is_the_wanted_names(
    name: str, unique: str, data: st.DataObject
) -> None:
    whole = f".{name}.{unique}.tmp"
    at = data.draw(st.integers(0, len(whole) - 1))
    other = data.draw(st.sampled_from("GZ_-.T").filter(lambda letter: letter != whole[at]))
    altered = whole[:at] + other + whole[at + 1 :]
    in_name = 1 <= at <= len(name)
    assert wanted_name(altered) == (altered[1 : len(name) + 1] if in_name else None)


@given(NAMES)
def test_a_name_without_both_marks_is_a_users_own(name: str) -> None:
    for own in (name, f".{name}", f".{name}.tmp", f"{name}.tmp"):
        parts = own.split(".")
        is_uuid = len(parts) > 3 and any(len(part) == 36 for part in parts)
        assert is_uuid or own.endswith("._COPYING_") or wanted_name(own) is None


@pytest.mark.parametrize(
    "name",
    [
        "._COPYING_",
        "a._COPYING_.1",
        "a_COPYING_",
        "a._copying_",
        f".{uuid.UUID(int=7, version=4)}.tmp",
        f".a.{uuid.UUID(int=7, version=1)}.tmp",
        f".a.{str(uuid.UUID(int=0xA << 60, version=4)).upper()}.tmp",
        f".a.{uuid.UUID(int=7, version=4)}.TID.tmp",
        f".a.{uuid.UUID(int=7, version=4)}.TID٣.tmp",
        f".a.{uuid.UUID(int=7, version=4)}.tmp.crc",
        f"a.{uuid.UUID(int=7, version=4)}.tmp",
        "0.tmp",
        ".0.tmp",
    ],
)
def test_names_that_only_look_like_it(name: str) -> None:
    assert wanted_name(name) is None


# -- collecting ------------------------------------------------------------------------------------


class Tree:
    """A namespace whose clock the test moves, and its collector."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self.metadata = store_in_memory()
        self.numbering = play.begin_epoch(self.metadata)
        self.wall_s = 1_000_000.0
        self.monotonic_s = 50.0
        self.pauses = 0
        #: Called just before each commit of the collector.
        self.before_commit: Callable[[], object] = lambda: None
        self.leases = Leases(-1000.0)

        async def pause(_s: float) -> None:
            self.pauses += 1

        context = OperationContext(
            self.metadata.reader(),
            CommitsAtOnce(self.metadata, lambda: self.before_commit()),
            play.core,
            Signer(b"secret"),
            NoLinks(),
            durable_at_once(self.metadata),
            monotonic=lambda: self.monotonic_s,
            wall_clock=lambda: self.wall_s,
            sleep=pause,
        )
        self.collector = TemporaryFiles(context, self.leases)

    @property
    def freed(self) -> int:
        """Return how many chunks are unreferenced, as far as the core knows."""
        return self._play.cluster.transient.freed_count

    def now_ms(self) -> int:
        return int(self.wall_s * 1000)

    def commit(self, change: Callable[[Transaction], Any]) -> Any:
        return run_now(self.metadata, change)

    def write(self, path: str) -> None:
        number = self.numbering.next()
        chunk = WrittenChunk(number, number, 10, 0, [Receipt("dn-1", b"")])
        file = NewFile(
            path=path, user="ann", overwrite=True, replication=1, block_bytes=1 << 26, request_id=str(number)
        )
        self.commit(lambda tx: namespace.complete_file(tx, file, [chunk], self.now_ms()))

    def take_lease(self, path: str) -> Lease:
        inode = namespace.status(self.metadata.reader(), parse_path(path)).inode
        lease = Lease(self.numbering.next(), "bob")
        self.commit(lambda tx: namespace.take_lease(tx, parse_path(path), inode, lease))
        self.leases.hold(self.monotonic_s, inode, lease)
        return lease

    def names(self, path: str) -> list[str]:
        return [entry.name for entry in namespace.list_page(self.metadata.reader(), parse_path(path)).entries]

    def let_pass(self, hours: float, *, only_wall: bool = False) -> None:
        self.wall_s += hours * HOUR_S
        self.monotonic_s += 0.0 if only_wall else hours * HOUR_S

    def look(self, age_hours: float = 24.0) -> int:
        return asyncio.run(self.collector.collect(age_hours * HOUR_S))


@pytest.fixture
def tree(play: Play) -> Tree:
    return Tree(play)


def test_temporary_file_goes_once_it_is_old_and_has_been_watched(tree: Tree) -> None:
    for path in (f"/c/offsets/{SPARK}", "/in/data._COPYING_", "/c/offsets/0", "/c/offsets/.x.tmp", "/notes.tmp"):
        tree.write(path)
    assert tree.look() == 0
    tree.let_pass(23.5)
    assert tree.look() == 0, "not old enough"
    tree.let_pass(0.5)
    assert tree.look() == 2
    assert tree.names("/c/offsets") == [".x.tmp", "0"] and tree.names("/in") == []
    assert tree.freed == 2 and tree.collector.collected == 2
    assert tree.look() == 0


def test_a_clock_that_jumps_makes_no_file_old(tree: Tree) -> None:
    tree.write(f"/{SPARK}")
    tree.look()
    tree.let_pass(24 * 365, only_wall=True)
    assert tree.look() == 0
    tree.let_pass(-24 * 365 * 2, only_wall=True)
    tree.let_pass(30)
    assert tree.look() == 0, "by the clock it comes from the future"
    tree.let_pass(24 * 365 * 2)
    assert tree.look() == 1


def test_a_collector_that_has_just_started_watches_first(tree: Tree) -> None:
    tree.write(f"/{SPARK}")
    tree.let_pass(100)
    assert tree.look() == 0
    tree.let_pass((temporary_watched_s - 1) / HOUR_S)
    assert tree.look() == 0
    tree.let_pass(1 / HOUR_S)
    assert tree.look() == 1


def test_a_directory_of_such_a_name_stays(tree: Tree) -> None:
    tree.commit(lambda tx: namespace.mkdirs(tx, parse_path("/x._COPYING_/y"), "ann", 0o755, tree.now_ms()))
    tree.look()
    tree.let_pass(48)
    assert tree.look() == 0 and tree.names("/") == ["x._COPYING_"]


def test_a_file_that_somebody_extends_stays_until_he_is_silent(tree: Tree) -> None:
    tree.write("/log._COPYING_")
    tree.look()
    tree.let_pass(48)
    tree.take_lease("/log._COPYING_")
    assert tree.look() == 0
    tree.let_pass(1)
    assert tree.look() == 1


def replace(tree: Tree) -> None:
    tree.write(f"/{SPARK}")


def rename(tree: Tree) -> None:
    source, target = parse_path(f"/{SPARK}"), parse_path("/0")
    tree.commit(lambda tx: namespace.rename(tx, source, target, RenameMode.STRICT, tree.now_ms()))


def rename_and_write_again(tree: Tree) -> None:
    rename(tree)
    replace(tree)


def extend(tree: Tree) -> None:
    tree.take_lease(f"/{SPARK}")


def set_times(tree: Tree) -> None:
    tree.commit(lambda tx: namespace.set_times(tx, parse_path(f"/{SPARK}"), tree.now_ms(), None))


@pytest.mark.parametrize("meanwhile", [replace, rename, rename_and_write_again, extend, set_times])
def test_a_writer_that_wakes_up_at_the_last_moment_wins(tree: Tree, meanwhile: Callable[[Tree], None]) -> None:
    tree.write(f"/{SPARK}")
    tree.look()
    tree.let_pass(48)
    tree.before_commit = lambda: meanwhile(tree)
    assert tree.look() == 0
    names = {rename: ["0"], rename_and_write_again: [SPARK, "0"]}.get(meanwhile, [SPARK])
    assert tree.names("/") == names and tree.freed == 0


def test_temporary_file_that_changes_is_watched_anew(tree: Tree) -> None:
    tree.write(f"/{SPARK}")
    for _ in range(5):
        tree.let_pass(20)
        tree.write(f"/{SPARK}")
        assert tree.look() == 0
    assert tree.names("/") == [SPARK]


def test_names_below_a_deleted_directory_are_left_to_those_who_take_it_apart(tree: Tree) -> None:
    tree.write(f"/d/{SPARK}")
    tree.look()
    tree.let_pass(48)
    tree.commit(lambda tx: namespace.delete(tx, parse_path("/d"), True, tree.now_ms()))
    assert tree.look() == 0


def test_a_snapshot_keeps_what_it_shows(tree: Tree) -> None:
    tree.write(f"/d/{SPARK}")
    path = parse_path("/d")
    tree.commit(lambda tx: snapshots.allow(tx, path))
    tree.commit(lambda tx: snapshots.create(tx, path, "s", tree.now_ms()))
    tree.look()
    tree.let_pass(48)
    assert tree.look() == 1 and tree.names("/d") == [] and tree.freed == 0
    place = snapshots.locate(tree.metadata.reader(), parse_path("/d/.snapshot/s"))
    assert [entry.name for entry in namespace.list_page(place.reader, place.path).entries] == [SPARK]


def test_many_names_are_looked_through_in_short_turns(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peacefs.coordinator.operations.temporary_files.temporary_entries_per_turn", 3)
    for number in range(20):
        tree.write(f"/d{number % 4}/.{number}.{uuid.UUID(int=number, version=4)}.tmp")
    tree.look()
    tree.let_pass(48)
    tree.pauses = 0
    assert tree.look() == 20
    assert tree.pauses == 8, "24 names, three a turn"


def test_temporary_files_over_the_limit_are_watched_later(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peacefs.coordinator.operations.temporary_files.temporary_watched_max", 2)
    for name in "abc":
        tree.write(f"/{name}._COPYING_")
    tree.look()
    tree.let_pass(48)
    assert tree.look() == 2
    tree.look()
    tree.let_pass(2)
    assert tree.look() == 1
