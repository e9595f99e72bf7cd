"""Directories, statuses, listings, attributes and deletion, as in HDFS."""

from __future__ import annotations

import pytest

from peacefs.coordinator.metadata.model import InodeKind, TreeSummary
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.errors import (
    AccessDenied,
    BadRequest,
    FileAlreadyExists,
    FileNotFound,
    ParentNotDirectory,
    PathError,
    PathIsNotEmptyDirectory,
    PathLimitExceeded,
)

from .conftest import Space


def test_a_new_namespace_is_an_empty_root(space: Space) -> None:
    root = space.status("/")
    assert (root.kind, root.name, root.owner, root.group, root.permission) == (
        InodeKind.DIRECTORY, "", "root", "supergroup", 0o755,
    )  # fmt: skip
    assert space.names("/") == []
    assert space.summary("/") == TreeSummary(directories=1, files=0, length=0, space_consumed=0)


def test_mkdirs_makes_the_parents_too_and_is_idempotent(space: Space) -> None:
    assert space.mkdirs("/a/b/c", user="ann", permission=0o500)
    assert space.mkdirs("/a/b/c", user="bob")
    made = space.status("/a/b/c")
    assert (made.kind, made.owner, made.group, made.permission) == (
        InodeKind.DIRECTORY,
        "ann",
        "supergroup",
        0o500,
    )
    assert made.length == made.block_bytes == made.replication == made.accessed_ms == 0
    # HDFS adds u+wx to new parents only, because ann could not make anything in them otherwise.
    assert space.status("/a/b").permission == 0o700
    assert space.mkdirs("/")


def test_mkdirs_over_and_below_a_file_fails_as_in_hdfs(space: Space) -> None:
    space.create("/f", 1)
    with pytest.raises(FileAlreadyExists, match="not a directory: /f"):
        space.mkdirs("/f")
    for below in ("/f/x", "/f/x/y"):
        with pytest.raises(ParentNotDirectory, match=r"^/f \(is not a directory\)"):
            space.mkdirs(below)
    with pytest.raises(PathLimitExceeded):
        space.mkdirs("/" + "n" * 256)
    with pytest.raises(BadRequest):
        space.mkdirs("/a/b:c")
    assert space.names("/") == ["f"]


def test_directories_belong_to_the_group_of_the_directory_above(space: Space) -> None:
    space.mkdirs("/project")
    space.commit(lambda tx: namespace.set_owner(tx, parse_path("/project"), None, "streams"))
    space.mkdirs("/project/a/b")
    space.create("/project/a/f")
    assert {space.status(path).group for path in ("/project/a", "/project/a/b", "/project/a/f")} == {"streams"}


def test_a_directory_is_modified_when_its_entries_change_and_at_no_other_time(space: Space) -> None:
    space.mkdirs("/d")
    times = [space.status("/d").modified_ms]
    for change in (
        lambda: space.create("/d/f", 1),
        lambda: space.mkdirs("/d/sub"),
        lambda: space.rename("/d/f", "/d/g"),
        lambda: space.rename("/d/g", "/g"),
        lambda: space.rename("/g", "/d/g"),
        lambda: space.create("/d/g", 1, overwrite=True),
        lambda: space.delete("/d/g"),
    ):
        change()
        times.append(space.status("/d").modified_ms)
    assert times == sorted(set(times)), "each of these changes the directory"
    space.create("/d/sub/f", 1)
    space.rename("/d/sub", "/elsewhere")
    space.rename("/elsewhere", "/d/sub")
    before = space.status("/d").modified_ms
    space.create("/d/sub/g", 1)
    space.delete("/d/missing")
    space.mkdirs("/d/sub")
    assert space.status("/d").modified_ms == before


@pytest.mark.evidence("clocks-jump")
def test_a_clock_that_goes_back_does_not_make_a_directory_younger(space: Space) -> None:
    space.mkdirs("/d")
    before = space.status("/d").modified_ms
    space.now_ms -= 60_000
    space.create("/d/f")
    assert space.status("/d").modified_ms == before


def test_a_path_through_a_file_has_no_status_and_is_otherwise_denied(space: Space) -> None:
    space.create("/f", 1)
    with pytest.raises(FileNotFound):
        space.status("/f/x")
    for operation in (
        lambda: space.delete("/f/x"),
        lambda: space.list_page("/f/x"),
        lambda: space.summary("/f/x"),
        lambda: space.commit(lambda tx: namespace.set_permission(tx, parse_path("/f/x/y"), 0o600)),
    ):
        with pytest.raises(AccessDenied, match=r"^/f \(is not a directory\)"):
            operation()


def test_missing_paths_are_not_found(space: Space) -> None:
    for operation in (
        lambda: space.status("/x"),
        lambda: space.list_page("/x"),
        lambda: space.summary("/x/y"),
        lambda: space.commit(lambda tx: namespace.set_times(tx, parse_path("/x"), 1, 1)),
        lambda: space.commit(lambda tx: namespace.set_permission(tx, parse_path("/x"), 0o600)),
        lambda: space.commit(lambda tx: namespace.set_owner(tx, parse_path("/x"), "bob", None)),
    ):
        with pytest.raises(FileNotFound, match="File does not exist: /x"):
            operation()


def test_a_listing_is_in_byte_order_and_paged_by_name(space: Space) -> None:
    names = ["B", "a", "a.b", "a0", "b", "é", "\uffff", "\U00010000"]
    for name in reversed(names):
        space.create(f"/d/{name}", 3)
    assert space.names("/d") == names, "UTF-8 bytes, not UTF-16 units as Java would compare them"
    seen: list[str] = []
    remaining: list[int] = []
    after = None
    while True:
        page = space.list_page("/d", after, 3)
        seen += [entry.name for entry in page.entries]
        remaining.append(page.remaining)
        if not page.remaining:
            break
        after = seen[-1]
    assert seen == names and remaining == [5, 2, 0]
    assert space.list_page("/d", "a0zzz", 1).entries[0].name == "b", "the name to start after need not be there"
    assert space.list_page("/d", "\U0010ffff").entries == []


def test_names_behind_a_page_are_counted_no_further_than_asked(space: Space) -> None:
    for name in "abcd":
        space.create(f"/d/{name}", 3)
    place = space.locate("/d")

    def remaining(after: str, remaining_max: int) -> int:
        return namespace.list_page(place.reader, place.path, after, 1, remaining_max=remaining_max).remaining

    assert [remaining("", most) for most in (1, 2, 1000)] == [1, 2, 3]
    assert [remaining(after, 1) for after in ("b", "c", "d")] == [1, 0, 0], "whether more follows is known"


def test_a_file_lists_itself_without_a_name(space: Space) -> None:
    space.create("/d/f", 5)
    assert space.list_page("/d/f").entries == [space.status("/d/f")]
    assert space.status("/d/f").name == ""


def test_the_entries_that_follow_a_page_are_counted_up_to_a_limit(space: Space) -> None:
    for number in range(9):
        space.create(f"/d/{number}")
    pages = [
        namespace.list_page(space.reader, parse_path("/d"), after, 2, remaining_max=4)
        for after in (None, "1", "3", "4", "6")
    ]
    assert [page.remaining for page in pages] == [4, 4, 3, 2, 0]


def test_a_summary_counts_the_whole_tree(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace, "list_page_entries", 2)
    for number in range(5):
        space.create(f"/t/{number % 2}/{number}", 10, 1, replication=3)
        space.mkdirs(f"/t/empty-{number}")
    assert space.summary("/t") == TreeSummary(directories=8, files=5, length=55, space_consumed=165)
    assert space.summary("/t/0/4") == TreeSummary(directories=0, files=1, length=11, space_consumed=33)


def test_times_owner_and_permission_are_set_one_by_one(space: Space) -> None:
    space.create("/f", 1)
    before = space.status("/f")
    path = parse_path("/f")
    space.commit(lambda tx: namespace.set_times(tx, path, 5, None))
    assert (space.status("/f").modified_ms, space.status("/f").accessed_ms) == (5, before.accessed_ms)
    space.commit(lambda tx: namespace.set_times(tx, path, None, 6))
    assert (space.status("/f").modified_ms, space.status("/f").accessed_ms) == (5, 6)
    space.commit(lambda tx: namespace.set_owner(tx, path, "bob", None))
    space.commit(lambda tx: namespace.set_permission(tx, path, 0o107777))
    after = space.status("/f")
    assert (after.owner, after.group, after.permission) == ("bob", "supergroup", 0o1777)
    assert (after.length, after.replication, after.inode) == (before.length, before.replication, before.inode)


def test_replication_is_set_for_files_alone_and_says_which_chunks_it_concerns(space: Space) -> None:
    added = space.create("/d/f", 4, 5, replication=2).added

    def set_replication(path: str, replication: int) -> namespace.ReplicationResult:
        return space.commit(lambda tx: namespace.set_replication(tx, parse_path(path), replication))

    result = set_replication("/d/f", 3)
    assert result.done and [(c.chunk, c.replication) for c in result.changed] == [(c.chunk, 3) for c in added]
    assert space.status("/d/f").replication == 3
    assert set_replication("/d/f", 3) == namespace.ReplicationResult(True, [])
    assert set_replication("/d", 3) == set_replication("/x", 3) == namespace.ReplicationResult(False, [])
    with pytest.raises(PathError, match="Requested replication factor"):
        set_replication("/d/f", 0)


def test_a_chunk_that_is_shared_keeps_the_higher_replication(space: Space) -> None:
    (chunk,) = space.create("/f", 4, replication=3).added
    space.commit(lambda tx: tx.add_reference(999, 0, chunk.chunk, 4))
    path = parse_path("/f")
    assert space.commit(lambda tx: namespace.set_replication(tx, path, 2)).changed == []
    assert [c.replication for c in space.commit(lambda tx: namespace.set_replication(tx, path, 4)).changed] == [4]


def test_delete_says_whether_there_was_anything(space: Space) -> None:
    (chunk,) = space.create("/d/f", 4).added
    assert space.delete("/x") == space.delete("/x/y", recursive=False) == namespace.DeleteResult(False, [])
    assert space.delete("/d/f", recursive=False) == namespace.DeleteResult(True, [chunk])
    assert space.delete("/d", recursive=False) == namespace.DeleteResult(True, [])
    assert space.names("/") == []
    assert space.sql("SELECT count(*) FROM inode") == [(1,)]


def test_a_directory_that_is_not_empty_is_deleted_only_recursively(space: Space) -> None:
    space.mkdirs("/d/sub")
    with pytest.raises(PathIsNotEmptyDirectory, match="/d is non empty"):
        space.delete("/d", recursive=False)
    assert space.names("/d") == ["sub"]
    assert space.delete("/d").done
    with pytest.raises(FileNotFound):
        space.status("/d/sub")


def test_the_root_is_never_deleted(space: Space) -> None:
    assert not space.delete("/", recursive=False).done
    space.mkdirs("/d")
    with pytest.raises(PathIsNotEmptyDirectory):
        space.delete("/", recursive=False)
    assert not space.delete("/", recursive=True).done
    assert space.names("/") == ["d"]


@pytest.mark.evidence("loop-is-free")
def test_a_large_tree_is_counted_in_turns_none_of_which_is_long(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespace, "tree_entries_per_turn", 10)
    space.create_many([f"/d/{directory}/{number:03}" for directory in range(5) for number in range(25)])
    turns = namespace.count_tree(space.reader, parse_path("/d"))
    pauses = 0
    while True:
        try:
            next(turns)
            pauses += 1
        except StopIteration as stop:
            summary = stop.value
            break
    assert pauses >= 125 // 22
    assert (summary.files, summary.directories) == (125, 6)
