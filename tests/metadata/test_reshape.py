"""Truncating and concatenating change references, not data."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from peacefs.coordinator.namespace import operations as namespace
from peacefs.protocol.errors import (
    AccessDenied,
    BadRequest,
    FileNotFound,
    IllegalChange,
    LeaseExpired,
    PathIsDirectory,
    PeacefsError,
)

from .conftest import Space

#: A file of three chunks of 10 bytes, truncated: what remains of each chunk.
_CUTS = [
    (30, [10, 10, 10]),
    (29, [10, 10, 9]),
    (21, [10, 10, 1]),
    (20, [10, 10]),
    (15, [10, 5]),
    (10, [10]),
    (1, [1]),
    (0, []),
]


@pytest.mark.parametrize(("length", "left"), _CUTS)
def test_a_truncated_file_ends_in_the_middle_of_a_chunk_or_between_two(
    space: Space, length: int, left: list[int]
) -> None:
    added = space.create("/f", 10, 10, 10).added
    modified = space.status("/f").modified_ms
    freed = space.truncate("/f", length)
    assert freed == added[len(left) :]
    assert space.pieces("/f") == [(chunk.chunk, n) for chunk, n in zip(added, left, strict=False)]
    status = space.status("/f")
    assert status.length == length
    assert (status.modified_ms > modified) == (length < 30), "nothing was changed when nothing was cut"
    assert namespace.chunk_page(space.reader, 0, 10) == added[: len(left)]
    space.check_references()


def test_a_truncated_file_grows_again_after_its_new_end(space: Space) -> None:
    first = space.create("/f", 10, 10).added
    space.truncate("/f", 13)
    space.truncate("/f", 12)
    second = space.append("/f", 7).added
    assert space.pieces("/f") == [(first[0].chunk, 10), (first[1].chunk, 2), (second[0].chunk, 7)]
    assert space.status("/f").length == 19
    assert space.truncate("/f", 12) == second
    assert space.truncate("/f", 11) == []
    assert space.status("/f").length == 11
    space.check_references()


@pytest.mark.parametrize(
    ("path", "length", "error", "words"),
    [
        ("/none", 0, FileNotFound, "File does not exist: /none"),
        ("/dir", 0, PathIsDirectory, "Path is not a file: /dir"),
        ("/", 0, PathIsDirectory, "Path is not a file: /"),
        ("/f/x", 0, AccessDenied, "is not a directory"),
        ("/f", -1, IllegalChange, r"Cannot truncate to a negative file size: -1\."),
        ("/f", 6, IllegalChange, r"larger file size\. Current size: 5, truncate size: 6\."),
    ],
)
def test_file_that_cannot_be_truncated_stays_as_it_is(
    space: Space, path: str, length: int, error: type[PeacefsError], words: str
) -> None:
    space.mkdirs("/dir")
    space.create("/f", 5)
    with pytest.raises(error, match=words):
        space.truncate(path, length)
    assert space.status("/f").length == 5


def test_truncating_fences_off_who_extends_the_file(space: Space) -> None:
    space.create("/f", 5)
    lease, file = space.take_lease("/f")
    space.truncate("/f", 5)
    with pytest.raises(LeaseExpired):
        space.extend(space.extension(lease, file.inode, 7))
    assert space.status("/f").length == 5


def test_concatenated_files_follow_one_another_and_are_gone(space: Space) -> None:
    target = space.create("/d/target", 10).added
    second = space.create("/e/second", 20, 5).added
    third = space.create("/d/third", 7).added
    space.truncate("/e/second", 21)
    before = space.status("/d/target")
    assert space.concat("/d/target", "/e/second", "/d/third") == []
    chunks = [*target, *second, *third]
    assert space.pieces("/d/target") == [(chunk.chunk, n) for chunk, n in zip(chunks, (10, 20, 1, 7), strict=True)]
    after = space.status("/d/target")
    assert (after.inode, after.length, after.modified_ms) == (before.inode, 38, space.now_ms)
    assert space.names("/d") == ["target"] and space.names("/e") == []
    assert space.status("/e").modified_ms == space.now_ms
    assert namespace.chunk_page(space.reader, 0, 10) == chunks
    assert space.delete("/d/target").freed == chunks
    space.check_references()


def test_the_pieces_get_the_replication_of_the_whole(space: Space) -> None:
    space.create("/target", 1, replication=2)
    (less,) = space.create("/less", 1, replication=1).added
    (more,) = space.create("/more", 1, replication=5).added
    changed = space.concat("/target", "/less", "/more")
    assert [(record.chunk, record.replication) for record in changed] == [(less.chunk, 2), (more.chunk, 2)]


@pytest.mark.parametrize(
    ("target", "sources", "error", "words"),
    [
        ("/none", ["/a"], FileNotFound, "File does not exist: /none"),
        ("/dir", ["/a"], PathIsDirectory, "Path is not a file: /dir"),
        ("/t", ["/a", "/none"], FileNotFound, "File does not exist: /none"),
        ("/t", ["/a", "/dir"], PathIsDirectory, "Path is not a file: /dir"),
        ("/t", ["/a/x"], AccessDenied, "is not a directory"),
        ("/t", [], BadRequest, "No sources given"),
        ("/t", ["/a", "/t"], IllegalChange, "src file /t is the same with the target file /t"),
        ("/t", ["/a", "/b", "/a"], IllegalChange, "at least two of the source files are the same"),
        ("/t", ["/a", "/empty"], IllegalChange, "source file /empty is invalid or empty or underConstruction"),
        ("/t", ["/a", "/big"], IllegalChange, "greater than the target file's preferred block size"),
        ("/t", ["/a"] * 4, IllegalChange, "4 source files are more than 3"),
    ],
)
def test_files_that_hdfs_does_not_concatenate_stay_as_they_are(
    space: Space,
    target: str,
    sources: list[str],
    error: type[PeacefsError],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("peacefs.coordinator.namespace.truncate_concat.concat_sources_max", 3)
    space.mkdirs("/dir")
    for path in ("/t", "/a", "/b"):
        space.create(path, 5)
    space.create("/empty")
    space.create("/big", 5, block_bytes=1 << 27)
    tables = [space.sql(f"SELECT * FROM {table}") for table in ("inode", "entry", "reference", "chunk")]
    with pytest.raises(error, match=words):
        space.concat(target, *sources)
    assert [space.sql(f"SELECT * FROM {t}") for t in ("inode", "entry", "reference", "chunk")] == tables


def test_a_target_that_may_be_empty_but_not_of_too_many_pieces(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peacefs.coordinator.namespace.append.file_chunks_max", 3)
    space.create("/t")
    space.create("/a", 1, 1)
    space.create("/b", 1, 1)
    with pytest.raises(PeacefsError, match="maximum number of blocks: 4 > 3"):
        space.concat("/t", "/a", "/b")
    assert space.names("/") == ["a", "b", "t"] and space.status("/t").length == 0
    space.concat("/t", "/a")
    assert space.status("/t").length == 2


def test_a_concatenation_asked_again_without_an_id_is_recognised_by_what_it_made(space: Space) -> None:
    for path in ("/t", "/a", "/b"):
        space.create(path, 5)
    space.concat("/t", "/a", "/b")
    assert space.concat("/t", "/a", "/b") == []
    assert space.status("/t").length == 15 and space.names("/") == ["t"]
    with pytest.raises(FileNotFound):
        space.concat("/t", "/b", "/a")


def change_target(space: Space) -> None:
    space.append("/t", 1)


def replace_target(space: Space) -> None:
    space.create("/t", 10, overwrite=True)


def recreate_a_source(space: Space) -> None:
    space.create("/b", 5)


def wait_too_long(space: Space) -> None:
    space.now_ms += 3_600_000


@pytest.mark.parametrize("meanwhile", [change_target, replace_target, recreate_a_source, wait_too_long])
def test_a_concatenation_is_not_taken_for_a_repetition_when_anything_has_changed(
    space: Space, meanwhile: Callable[[Space], None]
) -> None:
    for path in ("/t", "/a", "/b"):
        space.create(path, 5)
    space.concat("/t", "/a", "/b")
    meanwhile(space)
    with pytest.raises(FileNotFound, match="/a"):
        space.concat("/t", "/a", "/b")


def test_the_same_concatenation_can_be_made_again_in_the_same_moment(space: Space) -> None:
    space.now_ms += 9_000_000
    space.create("/t", 5)
    space.now_ms -= 9_000_000  # so that no change has a later time than the target
    made = []
    for _ in range(2):
        space.create("/a", 5)
        space.concat("/t", "/a")
        made.append(space.status("/t"))
        space.truncate("/t", 5)
    assert made[0] == made[1], "else this does not try what it says"


def test_a_long_source_is_moved_whole_although_it_is_reclaimed_in_steps(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peacefs.coordinator.namespace.reclaim.reclaim_entries_per_commit", 2)
    space.create("/t", 1)
    space.create("/a", 1, 1, 1, 1, 1)
    space.concat("/t", "/a")
    assert space.reclaim() == []
    assert space.status("/t").length == len(space.pieces("/t")) == 6
    space.check_references()
