"""Extending files: appended in one commit, once, and only by the latest holder of the lease."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from peacefs.coordinator.metadata.model import ChunkRecord, Lease, RenameMode
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.errors import (
    AccessDenied,
    BadRequest,
    FileAlreadyExists,
    FileNotFound,
    LeaseExpired,
    PeacefsError,
)

from .conftest import Space


def test_appended_bytes_are_at_the_end_and_the_file_is_as_long(space: Space) -> None:
    first = space.create("/d/f", 64, 10, replication=3).added
    before = space.status("/d/f")
    lease, file = space.take_lease("/d/f")
    assert space.status("/d/f") == before, "a lease changes nothing that can be seen"
    wanted = space.extension(lease, file.inode, 7, 8)
    publication = space.extend(wanted)
    assert (publication.length, publication.freed) == (89, [])
    assert publication.added == [
        ChunkRecord(c.chunk, c.version, c.length, 3, ("node-a", "node-b")) for c in wanted.chunks
    ]
    assert space.pieces("/d/f") == [(c.chunk, c.length) for c in (*first, *wanted.chunks)]
    after = space.status("/d/f")
    unchanged = {"modified_ms": 0, "length": 0}
    assert structs.replace(after, **unchanged) == structs.replace(before, **unchanged)
    assert (after.length, after.modified_ms) == (89, space.now_ms)
    assert space.append("/d/f", 1).length == 90
    space.check_references()


def test_nothing_may_be_appended_to_an_empty_file_and_to_any(space: Space) -> None:
    space.create("/f")
    assert space.append("/f").length == 0
    assert space.append("/f", 5).length == 5
    assert space.append("/f").length == 5
    assert space.sql("SELECT * FROM lease") == []


@pytest.mark.parametrize(
    ("path", "error"),
    [("/none", FileNotFound), ("/dir", FileAlreadyExists), ("/", FileAlreadyExists), ("/file/x", FileNotFound)],
)
def test_only_a_file_that_is_there_can_be_appended_to(space: Space, path: str, error: type[PeacefsError]) -> None:
    space.create("/file", 1)
    space.mkdirs("/dir")
    with pytest.raises(error):
        space.take_lease(path)
    assert space.sql("SELECT * FROM lease") == []


def test_a_completion_asked_again_gets_the_first_answer_and_adds_nothing(space: Space) -> None:
    space.create("/f", 1)
    lease, file = space.take_lease("/f")
    wanted = space.extension(lease, file.inode, 7)
    assert space.extend(wanted).length == 8
    space.append("/f", 100)
    assert space.extend(wanted) == namespace.Publication(8, [], [])
    assert space.status("/f").length == 108
    space.delete("/f")
    assert space.extend(wanted).length == 8, "it was done, whatever has become of it"
    with pytest.raises(BadRequest, match="has been used for another request"):
        space.extend(replace(wanted, chunks=space.chunks(7)))


def test_a_lease_extends_a_file_once(space: Space) -> None:
    space.create("/f", 1)
    lease, file = space.take_lease("/f")
    space.extend(space.extension(lease, file.inode, 7))
    with pytest.raises(LeaseExpired):
        space.extend(space.extension(lease, file.inode, 7))
    assert space.status("/f").length == 8


def test_last_lease_fences_off_all_before_even_when_they_come_first(space: Space) -> None:
    space.create("/f", 1)
    first, file = space.take_lease("/f", "first")
    second, _ = space.take_lease("/f", "second")
    with pytest.raises(LeaseExpired, match=r"first.*not the lease owner"):
        space.extend(space.extension(first, file.inode, 100))
    assert space.status("/f").length == 1
    assert space.extend(space.extension(second, file.inode, 7)).length == 8
    with pytest.raises(LeaseExpired):
        space.extend(space.extension(first, file.inode, 100))
    assert len(namespace.chunk_page(space.reader, 0, 10)) == 2, "what was refused has left no chunk"
    space.check_references()


def test_a_lease_that_was_abandoned_is_no_more_and_abandons_nobody_elses(space: Space) -> None:
    space.create("/f", 1)
    first, file = space.take_lease("/f")
    second, _ = space.take_lease("/f")
    space.commit(lambda tx: namespace.abandon_lease(tx, file.inode, first))
    assert space.reader.lease(file.inode) == second
    space.commit(lambda tx: namespace.abandon_lease(tx, file.inode, second))
    assert space.reader.lease(file.inode) is None
    with pytest.raises(LeaseExpired):
        space.extend(space.extension(second, file.inode, 7))


def test_a_file_that_was_moved_meanwhile_is_extended_where_it_is(space: Space) -> None:
    space.create("/d/f", 1)
    lease, file = space.take_lease("/d/f")
    space.rename("/d", "/e")
    space.rename("/e/f", "/e/g")
    other = space.create("/d/f", 5)
    assert space.extend(space.extension(lease, file.inode, 7)).length == 8
    assert space.status("/e/g").length == 8
    assert space.status("/d/f").length == other.length == 5


@pytest.mark.parametrize(
    "how", ["delete", "overwrite", "rename onto it", "concat it away", "delete a tree", "reclaimed with its tree"]
)
def test_a_file_that_is_gone_takes_no_more(space: Space, how: str) -> None:
    space.create("/d/f", 1)
    space.create("/d/other", 1)
    lease, file = space.take_lease("/d/f")
    match how:
        case "delete":
            space.delete("/d/f")
        case "overwrite":
            space.create("/d/f", 2, overwrite=True)
        case "rename onto it":
            space.rename("/d/other", "/d/f", RenameMode.OVERWRITE)
        case "concat it away":
            space.concat("/d/other", "/d/f")
        case "delete a tree":
            space.delete("/d")
        case _:
            space.delete("/d")
            space.reclaim()
    chunks = namespace.chunk_page(space.reader, 0, 10)
    with pytest.raises(FileNotFound, match="File does not exist: /what/it/was/called"):
        space.extend(space.extension(lease, file.inode, 7))
    assert namespace.chunk_page(space.reader, 0, 10) == chunks
    space.reclaim()
    assert space.sql("SELECT * FROM lease") == []


def test_a_long_file_that_is_still_being_reclaimed_takes_no_more(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peacefs.coordinator.namespace.reclaim.reclaim_entries_per_commit", 2)
    space.create("/f", 1, 1, 1, 1, 1)
    lease, file = space.take_lease("/f")
    space.delete("/f")
    assert space.reader.inode(file.inode) is not None
    with pytest.raises(FileNotFound):
        space.extend(space.extension(lease, file.inode, 7))
    space.reclaim()
    assert namespace.chunk_page(space.reader, 0, 10) == []


def test_a_file_that_was_replaced_between_looking_and_taking_is_not_taken(space: Space) -> None:
    space.create("/f", 1)
    looked = space.status("/f").inode
    space.create("/f", 1, overwrite=True)
    lease, _ = space.take_lease("/f", "another")
    with pytest.raises(LeaseExpired, match="replaced"):
        space.commit(lambda tx: namespace.take_lease(tx, parse_path("/f"), looked, lease._replace(number=1)))
    assert space.reader.lease(space.status("/f").inode) == lease


def test_a_chunk_of_another_file_cannot_be_appended(space: Space) -> None:
    space.create("/f", 1)
    lease, file = space.take_lease("/f")
    theirs = space.completion("/g", 7)
    space.complete(theirs)
    with pytest.raises(BadRequest, match="already belongs"):
        space.extend(space.extension(lease, file.inode, chunks=theirs.chunks))
    assert space.status("/f").length == 1
    assert space.reader.lease(file.inode) == lease, "the writer may try again with its own"
    space.check_references()


def test_a_file_of_too_many_pieces_takes_no_more(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peacefs.coordinator.namespace.append.file_chunks_max", 3)
    space.create("/f", 1)
    space.append("/f", 1, 1)
    with pytest.raises(PeacefsError, match="maximum number of blocks: 4 > 3: "):
        space.append("/f", 1)
    assert space.status("/f").length == 3


def test_chunk_that_is_garbage_by_now_is_not_added(space: Space) -> None:
    space.create("/f", 1)
    lease, file = space.take_lease("/f")
    late = space.extension(lease, file.inode, 7)
    space.commit(lambda tx: tx.raise_gc_floor(late.chunks[0].chunk + 1))
    with pytest.raises(AccessDenied, match="write it again"):
        space.extend(late)
    assert space.status("/f").length == 1
    assert space.extend(space.extension(lease, file.inode, 8)).length == 9


def test_a_flush_adds_and_keeps_the_lease_and_the_next_may_replace_what_it_added(space: Space) -> None:
    before = space.create("/f", 100).added
    lease, file = space.take_lease("/f")
    first = space.extension(lease, file.inode, 5, keeps_lease=True)
    assert space.extend(first).length == space.status("/f").length == 105
    assert space.reader.lease(file.inode) == lease
    second = space.extension(lease, file.inode, 8, keeps_lease=True, replaced=[first.chunks[0].chunk])
    publication = space.extend(second)
    assert publication.length == space.status("/f").length == 108
    assert [each.chunk for each in publication.freed] == [first.chunks[0].chunk]
    assert space.pieces("/f") == [(before[0].chunk, 100), (second.chunks[0].chunk, 8)]
    assert space.extend(second).length == 108, "a replay gets the first answer"
    last = space.extension(lease, file.inode, 8, 1, replaced=[second.chunks[0].chunk])
    assert space.extend(last).length == 109
    assert space.reader.lease(file.inode) is None
    space.check_references()


def test_replaced_tail_must_be_the_end_and_no_longer_than_its_replacement(space: Space) -> None:
    space.create("/f", 100)
    lease, file = space.take_lease("/f")
    flushes = [space.extension(lease, file.inode, length, keeps_lease=True) for length in (5, 6)]
    for flush in flushes:
        space.extend(flush)
    older, newer = (flush.chunks[0].chunk for flush in flushes)
    for replaced, words in (
        ([older], "not the end"),
        ([newer, older], "not the end"),
        ([newer, newer], "not the end"),
        ([7, 8, 9, newer], "not the end"),
        ([older, newer], "cannot be replaced by fewer bytes"),
    ):
        with pytest.raises(BadRequest, match=words):
            space.extend(space.extension(lease, file.inode, 10, replaced=replaced))
    assert space.status("/f").length == 111
    space.check_references()


def test_a_flush_of_whoever_has_lost_the_lease_is_refused(space: Space) -> None:
    space.create("/f", 100)
    lease, file = space.take_lease("/f", "ann")
    space.extend(space.extension(lease, file.inode, 5, keeps_lease=True))
    space.take_lease("/f", "bob")
    with pytest.raises(LeaseExpired, match=r"Client \(=ann\) is not the lease owner"):
        space.extend(space.extension(lease, file.inode, 5, keeps_lease=True))
    assert space.status("/f").length == 105


def test_snapshot_keeps_a_tail_that_was_replaced(space: Space) -> None:
    space.allow_snapshots("/")
    space.create("/f", 100)
    lease, file = space.take_lease("/f")
    first = space.extension(lease, file.inode, 5, keeps_lease=True)
    space.extend(first)
    space.take_snapshot("/", "s")
    replaced = [first.chunks[0].chunk]
    assert space.extend(space.extension(lease, file.inode, 8, replaced=replaced)).freed == []
    assert space.pieces("/.snapshot/s/f")[1] == (first.chunks[0].chunk, 5)
    assert space.status("/f").length == 108


def test_a_file_that_is_published_by_a_flush_has_its_writers_lease(space: Space) -> None:
    file, lease = space.completion("/f", 5), Lease(77, "ann")

    def flush(holder: Lease, *, before: bool) -> tuple[int, Lease]:
        path = parse_path(file.file.path)
        return space.commit(lambda tx: namespace.lease_published(tx, path, holder, before=before))

    space.complete(file)
    inode, taken = flush(lease, before=False)
    assert taken == space.reader.lease(inode) == lease
    assert flush(Lease(99, "ann"), before=True) == (inode, lease), (
        "asked again, it has the lease of the first time"
    )
    with pytest.raises(LeaseExpired, match="taken over"):
        flush(Lease(99, "bob"), before=True)
    space.delete("/f")
    with pytest.raises(LeaseExpired, match="deleted"):
        flush(lease, before=True)
