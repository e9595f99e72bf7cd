"""Snapshots never change, cost nothing to take, and free their rows with the last one."""

from __future__ import annotations

from typing import Any

import pytest

from peacefs.coordinator.metadata.log.entry import decode_content
from peacefs.coordinator.metadata.model import RenameMode
from peacefs.coordinator.metadata.tables import META, SNAPSHOT
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace import snapshots
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.errors import (
    BadRequest,
    FileNotFound,
    PathLimitExceeded,
    SnapshotIsReadOnly,
    SnapshotRefused,
)

from .conftest import Space, space_in_memory
from .snapshot_world import change_everything, retired, set_mode, tree


def test_a_snapshot_shows_everything_as_it_was(grown: Space) -> None:
    before = tree(grown, "/d")
    assert len(before) == 13 + 4
    grown.take_snapshot("/d", "s")
    change_everything(grown)
    assert tree(grown, "/d/.snapshot/s") == before
    assert grown.names("/d") == ["chmod", "replaced"]
    assert grown.status("/d/chmod").permission == 0o640
    assert grown.summary("/d/.snapshot/s").files == 13
    grown.check_references()


@pytest.mark.parametrize("space", ["alone"], indirect=True)
def test_taking_one_is_one_row_whatever_the_directory_holds(grown: Space) -> None:
    before = grown.metadata.rows.number
    grown.take_snapshot("/d", "s")
    assert grown.metadata.rows.number == before + 1
    changes = decode_content(grown.metadata.log.entries[-1].content).changes
    assert [table for table, _ in changes][:2] == [SNAPSHOT, META], "and the number of the transaction"


def test_each_of_two_snapshots_shows_its_own_state(grown: Space) -> None:
    first = tree(grown, "/d")
    grown.take_snapshot("/d", "1")
    grown.create("/d/replaced", 1, overwrite=True)
    set_mode(grown, "/d/chmod", 0o777)
    second = tree(grown, "/d")
    grown.take_snapshot("/d", "2")
    change_everything(grown)
    assert second != first
    assert tree(grown, "/d/.snapshot/1") == first
    assert tree(grown, "/d/.snapshot/2") == second


def test_a_snapshot_keeps_nothing_of_what_is_not_in_its_directory(grown: Space) -> None:
    grown.take_snapshot("/d", "s")
    assert len(grown.delete("/other/f").freed) == 1
    assert grown.delete("/d/deleted").freed == []
    grown.create("/d/later", 1)
    assert len(grown.delete("/d/later").freed) == 1, "nor of what came after it"


def test_snapshot_keeps_what_was_moved_out_and_changed_there(grown: Space) -> None:
    before = tree(grown, "/d")
    grown.take_snapshot("/d", "s")
    grown.rename("/d/tree", "/other/tree")
    grown.create("/other/tree/0/0", 9, overwrite=True)
    assert grown.delete("/other/tree/0/3").freed == []
    grown.delete("/other")
    grown.reclaim(limit=2)
    assert tree(grown, "/d/.snapshot/s") == before
    grown.drop_snapshot("/d", "s")
    grown.reclaim()
    assert retired(grown) == 0


def test_a_snapshot_taken_after_a_delete_keeps_nothing_of_what_waits_to_be_reclaimed(grown: Space) -> None:
    grown.delete("/d/tree")
    grown.take_snapshot("/d", "s")
    assert len(grown.reclaim(limit=4)) == 18
    assert retired(grown) == 0


@pytest.mark.parametrize("limit", [1, 3, 1000])
@pytest.mark.parametrize("order", ["123", "321", "213"])
def test_dropped_snapshots_go_in_steps_and_the_rest_stays(order: str, limit: int) -> None:
    space = space_in_memory()
    space.mkdirs("/d")
    space.allow_snapshots("/d")
    shown = {}
    for name in "123":
        for file in range(4):
            space.create(f"/d/{'same' if file else name}/{file}", 1, 1, overwrite=True)
        shown[name] = tree(space, "/d")
        space.take_snapshot("/d", name)
    space.delete("/d/same")
    space.reclaim()
    for dropped in order:
        space.drop_snapshot("/d", dropped)
        del shown[dropped]
        space.reclaim(limit)
        for name, expected in shown.items():
            assert tree(space, f"/d/.snapshot/{name}") == expected
        kept = {chunk for each in shown.values() for *_, chunks in each.values() for chunk in chunks}
        now = {chunk for *_, chunks in tree(space, "/d").values() for chunk in chunks}
        assert {record.chunk for record in namespace.chunk_page(space.reader, 0, 1000)} == kept | now
        space.check_references()
    assert retired(space) == 0
    space.metadata.close()


def test_a_step_of_purging_is_bounded(grown: Space) -> None:
    grown.take_snapshot("/d", "s")
    change_everything(grown)
    grown.drop_snapshot("/d", "s")
    left = retired(grown)
    more = True
    while more:
        _, more = grown.commit(lambda tx: tx.purge_retired(4))
        assert left - retired(grown) <= 4
        left = retired(grown)
    assert left == 0


def test_without_a_snapshot_nothing_is_left_behind(grown: Space) -> None:
    change_everything(grown)
    assert retired(grown) == 0


def test_a_snapshot_shows_files_as_long_as_they_were(space: Space) -> None:
    for path in ("appended", "cut", "cut-off", "target", "source"):
        space.create(f"/d/{path}", 10, 10)
    space.allow_snapshots("/d")
    space.take_snapshot("/d", "s")
    before = tree(space, "/d")
    pieces = {name: space.pieces(f"/d/{name}") for name in before}

    space.append("/d/appended", 10)
    for length in (15, 12):
        assert space.truncate("/d/cut", length) == []
    assert space.truncate("/d/cut-off", 5) == []
    space.concat("/d/target", "/d/source")
    now = {name: length for name, (_, _, length, _) in tree(space, "/d").items()}
    assert now == {"appended": 30, "cut": 12, "cut-off": 5, "target": 40}
    assert tree(space, "/d/.snapshot/s") == before
    assert {name: space.pieces(f"/d/.snapshot/s/{name}") for name in before} == pieces
    space.check_references()
    space.restore("/d", "s")
    assert tree(space, "/d") == before
    assert {name: space.pieces(f"/d/{name}") for name in before} == pieces
    space.drop_snapshot("/d", "s")
    space.reclaim()
    assert retired(space) == 0
    space.check_references()


def test_a_change_that_failed_leaves_no_false_memory_of_snapshots(grown: Space) -> None:
    def take_and_fail(tx: Any) -> None:
        snapshots.create(tx, parse_path("/d"), "s", 0)
        tx.shown_by(1, 0, None)
        raise BadRequest("on purpose")

    with pytest.raises(BadRequest, match="on purpose"):
        grown.commit(take_and_fail)
    assert len(grown.delete("/d/deleted").freed) == 2


# -- what is refused -----------------------------------------------------------------------------------


def test_only_a_directory_that_allows_them_has_snapshots(grown: Space) -> None:
    with pytest.raises(SnapshotRefused, match="Directory is not a snapshottable directory: /other"):
        grown.take_snapshot("/other", "s")
    with pytest.raises(FileNotFound):
        grown.allow_snapshots("/nothing")
    with pytest.raises(FileNotFound):
        grown.status("/other/.snapshot/s")
    grown.take_snapshot("/d", "s")
    with pytest.raises(SnapshotRefused, match='already a snapshot with the same name "s"'):
        grown.take_snapshot("/d", "s")
    with pytest.raises(SnapshotRefused, match=r"has snapshot\(s\)"):
        grown.commit(lambda tx: snapshots.disallow(tx, parse_path("/d")))
    with pytest.raises(SnapshotRefused, match="Cannot delete snapshot x from path /d"):
        grown.drop_snapshot("/d", "x")
    grown.drop_snapshot("/d", "s")
    grown.commit(lambda tx: snapshots.disallow(tx, parse_path("/d")))
    with pytest.raises(SnapshotRefused):
        grown.take_snapshot("/d", "s")


@pytest.mark.parametrize("nested", ["/", "/d/tree", "/d/tree/0"])
def test_one_within_another_is_not_allowed(grown: Space, nested: str) -> None:
    with pytest.raises(SnapshotRefused, match="Nested snapshottable directories not allowed"):
        grown.allow_snapshots(nested)
    grown.allow_snapshots("/other")
    grown.allow_snapshots("/d")


@pytest.mark.parametrize("name", ["a/b", "", ".", "..", ".snapshot", "a:b", "a\0b"])
def test_a_name_that_is_no_component_is_refused(grown: Space, name: str) -> None:
    with pytest.raises(BadRequest):
        grown.take_snapshot("/d", name)
    with pytest.raises(PathLimitExceeded):
        grown.take_snapshot("/d", "n" * 256)


def test_a_directory_with_snapshots_stays_and_so_does_what_is_above_it(space: Space) -> None:
    space.mkdirs("/a/b/c")
    space.mkdirs("/x")
    space.allow_snapshots("/a/b")
    space.take_snapshot("/a/b", "s")
    for path in ("/a", "/a/b"):
        words = f"The directory {path} cannot be deleted since /a/b is snapshottable and already has snapshots"
        with pytest.raises(SnapshotRefused, match=words):
            space.delete(path)
        for mode in RenameMode:
            with pytest.raises(SnapshotRefused, match=words):
                space.rename(path, "/new", mode)
    assert space.delete("/a/b/c").done
    with pytest.raises(SnapshotRefused):
        space.rename("/x", "/a/b", RenameMode.OVERWRITE)
    space.drop_snapshot("/a/b", "s")
    assert space.delete("/a").done
    space.reclaim()
    assert space.sql("SELECT count(*) FROM snapshot_directory") == [(0,)]


def test_nothing_below_a_snapshot_can_be_named_for_a_change() -> None:
    with pytest.raises(SnapshotIsReadOnly, match="Modification on a read-only snapshot is disallowed"):
        snapshots.changeable_path("/d/.snapshot/s/f")


def test_a_snapshot_is_renamed(grown: Space) -> None:
    grown.take_snapshot("/d", "s")
    grown.take_snapshot("/d", "t")
    grown.commit(lambda tx: snapshots.rename(tx, parse_path("/d"), "s", "u"))
    page = snapshots.list_page(grown.reader, parse_path("/d/.snapshot"), None, 10)
    assert [entry.name for entry in page.entries] == ["t", "u"]
    for old, new in (("s", "v"), ("t", "u")):
        with pytest.raises(SnapshotRefused):
            grown.commit(lambda tx, old=old, new=new: snapshots.rename(tx, parse_path("/d"), old, new))


def test_a_name_from_the_clock_is_hdfss() -> None:
    assert snapshots.default_name(1_700_000_000_042) == "s20231114-221320.042"
