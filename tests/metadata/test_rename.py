"""Rename, compared with a table written by hand from HDFS's FSDirRenameOp."""

from __future__ import annotations

import pytest

from peacefs.coordinator.limits import rename_memory_s
from peacefs.coordinator.metadata.model import RenameMode
from peacefs.coordinator.namespace import operations as namespace
from peacefs.protocol.errors import (
    BadRequest,
    FileAlreadyExists,
    FileNotFound,
    NameTooLong,
    ParentNotDirectory,
    PathThroughFile,
    PeacefsError,
    RenameRefused,
)

from .conftest import Space

LEGACY, STRICT, OVERWRITE = RenameMode

# The tree:  /f  /g  /empty/  /empty2/  /full/f  /full/sub/  /full2/empty/x
# An outcome is an error, or False, or where the source is found afterwards.
Outcome = type[PeacefsError] | bool | str
TABLE: list[tuple[str, str, Outcome, Outcome, Outcome]] = [
    # source        target           LEGACY              STRICT              OVERWRITE
    ("/f",          "/new",          "/new",             "/new",             "/new"),
    ("/f",          "/full/new",     "/full/new",        "/full/new",        "/full/new"),
    ("/full",       "/new",          "/new",             "/new",             "/new"),
    ("/full",       "/empty/new",    "/empty/new",       "/empty/new",       "/empty/new"),
    # The source does not exist.
    ("/x",          "/new",          False,              FileNotFound,       FileNotFound),
    ("/x/y",        "/new",          False,              FileNotFound,       FileNotFound),
    ("/x",          "/f",            False,              FileNotFound,       FileNotFound),
    ("/x",          "/x",            False,              FileNotFound,       FileNotFound),
    ("/x",          "/empty",        False,              FileNotFound,       FileNotFound),
    ("/f/x",        "/new",          PathThroughFile,    PathThroughFile,    PathThroughFile),
    # The root cannot be moved.
    ("/",           "/new",          False,              RenameRefused,      RenameRefused),
    ("/",           "/",             False,              RenameRefused,      RenameRefused),
    ("/",           "/empty",        False,              RenameRefused,      RenameRefused),
    # The target is the source.
    ("/f",          "/f",            "/f",               FileAlreadyExists,  FileAlreadyExists),
    ("/full",       "/full",         False,              FileAlreadyExists,  FileAlreadyExists),
    ("/full/f",     "/full",         "/full/f",          RenameRefused,      RenameRefused),
    # The target is below the source.
    ("/full",       "/full/new",     False,              RenameRefused,      RenameRefused),
    ("/full",       "/full/sub",     False,              RenameRefused,      RenameRefused),
    ("/full",       "/full/sub/new", False,              RenameRefused,      RenameRefused),
    ("/full",       "/full/x/new",   False,              RenameRefused,      RenameRefused),
    ("/full",       "/full2/full",   "/full2/full",      "/full2/full",      "/full2/full"),
    # The target is the root.
    ("/full/f",     "/",             False,              RenameRefused,      RenameRefused),
    ("/full/sub",   "/",             "/sub",             RenameRefused,      RenameRefused),
    ("/f",          "/",             "/f",               RenameRefused,      RenameRefused),
    # The target's parent is missing, or is a file.
    ("/f",          "/x/new",        False,              FileNotFound,       FileNotFound),
    ("/full",       "/x/y/new",      False,              FileNotFound,       FileNotFound),
    ("/f",          "/g/new",        ParentNotDirectory, ParentNotDirectory, ParentNotDirectory),
    ("/x",          "/g/new",        ParentNotDirectory, ParentNotDirectory, ParentNotDirectory),
    ("/f",          "/f/new",        ParentNotDirectory, ParentNotDirectory, ParentNotDirectory),
    ("/full",       "/g/x/new",      ParentNotDirectory, ParentNotDirectory, ParentNotDirectory),
    # The target is a file.
    ("/f",          "/g",            False,              FileAlreadyExists,  "/g"),
    ("/f",          "/full/f",       False,              FileAlreadyExists,  "/full/f"),
    ("/full",       "/g",            False,              RenameRefused,      RenameRefused),
    ("/empty",      "/g",            False,              RenameRefused,      RenameRefused),
    # The target is an empty directory.
    ("/f",          "/empty",        "/empty/f",         RenameRefused,      RenameRefused),
    ("/full",       "/empty",        "/empty/full",      FileAlreadyExists,  "/empty"),
    ("/empty2",     "/empty",        "/empty/empty2",    FileAlreadyExists,  "/empty"),
    # The target is a non-empty directory.
    ("/f",          "/full",         False,              RenameRefused,      RenameRefused),
    ("/g",          "/full",         "/full/g",          RenameRefused,      RenameRefused),
    ("/empty",      "/full",         "/full/empty",      FileAlreadyExists,  RenameRefused),
    ("/empty",      "/full2",        False,              FileAlreadyExists,  RenameRefused),
    ("/full",       "/full2",        "/full2/full",      FileAlreadyExists,  RenameRefused),
    # Invalid names.
    ("/f",          "/a:b",          BadRequest,         BadRequest,         BadRequest),
    ("/f",          "/" + "n" * 256, NameTooLong,        NameTooLong,        NameTooLong),
]  # fmt: skip


@pytest.fixture
def tree(space: Space) -> Space:
    for path in ("/f", "/g", "/full/f", "/full2/empty/x"):
        space.create(path, 10)
    for path in ("/empty", "/empty2", "/full/sub"):
        space.mkdirs(path)
    return space


def picture(space: Space) -> list[tuple[object, ...]]:
    return space.sql("SELECT parent, name, inode FROM entry ORDER BY parent, name")


@pytest.mark.parametrize("mode", RenameMode)
@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]} to {row[1][:20]}")
@pytest.mark.evidence("names-are-atomic")
def test_outcomes_are_those_of_hdfs(
    tree: Space, row: tuple[str, str, Outcome, Outcome, Outcome], mode: RenameMode
) -> None:
    source, target, *outcomes = row
    outcome = outcomes[list(RenameMode).index(mode)]
    before = picture(tree)
    if isinstance(outcome, str):
        inode = tree.status(source).inode
        assert tree.rename(source, target, mode).done
        assert tree.status(outcome).inode == inode
        if outcome != source:
            with pytest.raises(FileNotFound):
                tree.status(source)
    elif outcome is False:
        assert not tree.rename(source, target, mode).done
        assert picture(tree) == before
    else:
        with pytest.raises(PeacefsError) as raised:
            tree.rename(source, target, mode)
        assert type(raised.value) is outcome
        assert picture(tree) == before
    tree.check_references()


def test_a_moved_directory_brings_its_contents(tree: Space) -> None:
    tree.rename("/full", "/empty/moved")
    assert tree.names("/empty/moved") == ["f", "sub"]
    assert tree.names("/") == ["empty", "empty2", "f", "full2", "g"]


def test_rename_leaves_the_times_of_what_it_moves(tree: Space) -> None:
    before = tree.status("/f")
    tree.rename("/f", "/empty/f")
    assert tree.status("/empty/f") == before


def test_overwriting_frees_the_replaced_file_and_directory(tree: Space) -> None:
    replaced = tree.status("/g").inode
    (chunk,) = namespace.layout(tree.reader, replaced)
    result = tree.rename("/f", "/g", OVERWRITE)
    assert [freed.chunk for freed in result.freed] == [chunk.chunk]
    assert tree.rename("/empty2", "/empty", OVERWRITE).freed == []
    inodes = tree.sql("SELECT count(*) FROM inode")[0][0]
    entries = tree.sql("SELECT count(*) FROM entry")[0][0]
    assert inodes == entries + 1, "nothing but the root is without a name"


@pytest.mark.parametrize("mode", RenameMode)
def test_a_repeated_rename_whose_answer_was_lost_succeeds_again(tree: Space, mode: RenameMode) -> None:
    for source, target in (("/f", "/new"), ("/full", "/dir"), ("/g", "/empty/g")):
        assert tree.rename(source, target, mode).done
        after = picture(tree)
        assert tree.rename(source, target, mode) == namespace.RenameResult(True, [])
        assert picture(tree) == after


def test_a_repeated_move_into_a_directory_succeeds_again(tree: Space) -> None:
    assert tree.rename("/g", "/full", LEGACY).done
    assert tree.rename("/g", "/full", LEGACY).done
    assert tree.names("/full") == ["f", "g", "sub"]


def test_a_target_that_came_from_elsewhere_is_not_taken_for_a_replay(tree: Space) -> None:
    tree.rename("/f", "/new")
    with pytest.raises(FileNotFound):
        tree.rename("/x", "/new")
    # The file at the target was replaced meanwhile, so it is not the renamed one.
    tree.create("/new", 1, overwrite=True)
    with pytest.raises(FileNotFound):
        tree.rename("/f", "/new")


def test_a_source_that_is_there_again_is_renamed_as_usual(tree: Space) -> None:
    tree.rename("/f", "/new")
    tree.create("/f", 1)
    with pytest.raises(FileAlreadyExists):
        tree.rename("/f", "/new")
    assert not tree.rename("/f", "/new", LEGACY).done


def test_a_rename_is_not_recognised_for_ever(tree: Space) -> None:
    tree.rename("/f", "/new")
    tree.now_ms += int(rename_memory_s * 1000)
    with pytest.raises(FileNotFound):
        tree.rename("/f", "/new")
