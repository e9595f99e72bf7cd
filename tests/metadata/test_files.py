"""Creating files: one commit, all or nothing, once per request."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import structs

from peacefs.coordinator.metadata.model import ChunkRecord, FileChunk
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.reclaim import forget_answers_step
from peacefs.protocol.errors import (
    AccessDenied,
    BadRequest,
    FileAlreadyExists,
    FileNotFound,
    NameTooLong,
    ParentNotDirectory,
    PeacefsError,
)
from peacefs.protocol.new_file import NewFile

from .conftest import Space


def check_create(space: Space, path: str, overwrite: bool = False, create_parent: bool = True) -> None:
    file = NewFile(path=path, user="ann", overwrite=overwrite, create_parent=create_parent, replication=1)
    namespace.check_create(space.reader, parse_path(path), file)


def test_a_completed_file_is_there_with_its_chunks_in_order(space: Space) -> None:
    file = space.completion("/a/b/f", 64, 64, 10, permission=0o640, replication=3)
    publication = space.complete(file)
    assert publication.length == 138 and publication.freed == []
    assert publication.added == [
        ChunkRecord(c.chunk, c.version, c.length, 3, ("node-a", "node-b")) for c in file.chunks
    ]
    status = space.status("/a/b/f")
    assert (status.length, status.owner, status.group, status.permission) == (138, "ann", "supergroup", 0o640)
    assert (status.modified_ms, status.accessed_ms) == (space.now_ms, space.now_ms)
    assert (status.block_bytes, status.replication) == (1 << 26, 3)
    assert namespace.layout(space.reader, status.inode) == [
        FileChunk(c.chunk, c.version, c.length) for c in file.chunks
    ]
    assert structs.replace(namespace.status_of_inode(space.reader, status.inode), name="") == status
    assert namespace.chunk_page(space.reader, 0, 2) == publication.added[:2]
    assert namespace.chunk_page(space.reader, publication.added[1].chunk, 2) == publication.added[2:]
    space.check_references()


def test_a_file_may_be_empty(space: Space) -> None:
    assert space.create("/f") == namespace.Publication(0, [], [])
    assert namespace.layout(space.reader, space.status("/f").inode) == []


def test_parents_are_made_for_the_writer_with_the_permission_of_the_directory_above(space: Space) -> None:
    space.mkdirs("/d", permission=0o511)
    space.create("/d/x/y/f", user="bob")
    for made in ("/d/x", "/d/x/y"):
        assert (space.status(made).owner, space.status(made).permission) == ("bob", 0o711)
    assert space.status("/d").permission == 0o511


def test_overwriting_frees_what_was_there_in_the_same_commit(space: Space) -> None:
    old = space.create("/d/f", 4, 5).added
    inode = space.status("/d/f").inode
    new = space.create("/d/f", 6, overwrite=True, user="bob")
    assert new.freed == old
    status = space.status("/d/f")
    assert (status.length, status.owner) == (6, "bob") and status.inode != inode
    assert namespace.chunk_page(space.reader, 0, 10) == new.added
    with pytest.raises(FileNotFound, match="deleted or replaced"):
        namespace.status_of_inode(space.reader, inode)
    space.check_references()


@pytest.mark.parametrize(
    ("path", "options", "error"),
    [
        ("/file", {}, FileAlreadyExists),
        ("/dir", {}, FileAlreadyExists),
        ("/dir", {"overwrite": True}, FileAlreadyExists),
        ("/", {"overwrite": True}, FileAlreadyExists),
        ("/file/x", {}, ParentNotDirectory),
        ("/file/x/y", {"create_parent": False}, ParentNotDirectory),
        ("/missing/x", {"create_parent": False}, FileNotFound),
        ("/dir/a:b", {}, BadRequest),
        ("/dir/" + "n" * 256, {}, NameTooLong),
        ("/dir/" + "n" * 256 + "/f", {}, NameTooLong),
    ],
)
def test_creation_is_refused_at_create_and_again_at_completion(
    space: Space, path: str, options: dict[str, bool], error: type[PeacefsError]
) -> None:
    space.create("/file", 1)
    space.mkdirs("/dir")
    tables = [space.sql(f"SELECT * FROM {table}") for table in ("inode", "entry", "chunk", "request")]
    with pytest.raises(error):
        check_create(space, path, **options)
    with pytest.raises(error):
        space.create(path, 1, **options)
    assert [space.sql(f"SELECT * FROM {table}") for table in ("inode", "entry", "chunk", "request")] == tables


def test_creation_check_passes_and_leaves_nothing(space: Space) -> None:
    space.create("/file", 1)
    check_create(space, "/file", overwrite=True)
    check_create(space, "/new/x")
    check_create(space, "/new", create_parent=False)
    assert space.names("/") == ["file"]


def test_a_file_that_appeared_meanwhile_is_not_overwritten(space: Space) -> None:
    check_create(space, "/f")
    winner = space.create("/f", 1)
    with pytest.raises(FileAlreadyExists):
        space.create("/f", 2)
    assert namespace.chunk_page(space.reader, 0, 10) == winner.added


def test_a_repeated_completion_gets_the_first_answer_and_changes_nothing(space: Space) -> None:
    file = space.completion("/tmp/f", 7)
    assert space.complete(file).length == 7
    assert space.complete(file) == namespace.Publication(7, [], [])
    # This holds also if the file was renamed long ago, as Spark does at once.
    space.rename("/tmp/f", "/f")
    assert space.complete(file) == namespace.Publication(7, [], [])
    assert space.names("/tmp") == [] and space.names("/") == ["f", "tmp"]
    # The acknowledging datanodes do not matter: the writer may have asked the pipeline again.
    fewer = [msgspec.structs.replace(chunk, receipts=chunk.receipts[:1]) for chunk in file.chunks]
    assert space.complete(file._replace(chunks=fewer)).length == 7
    # Nor do the chunks matter, which differ if the body was sent again.
    assert space.complete(file._replace(chunks=space.chunks(7))) == namespace.Publication(7, [], [])


def test_a_request_id_cannot_complete_something_else(space: Space) -> None:
    file = space.completion("/f", 7)
    space.complete(file)
    for other in (file._replace(chunks=space.chunks(8)), file.changed(path="/g")):
        with pytest.raises(BadRequest, match="has been used for another request"):
            space.complete(other)
    assert space.names("/") == ["f"]


def test_a_chunk_belongs_to_the_file_that_was_first_completed_with_it(space: Space) -> None:
    file = space.completion("/f", 7)
    space.complete(file)
    with pytest.raises(BadRequest, match="already belongs"):
        space.complete(file.changed(path="/g", request_id="another"))
    with pytest.raises(BadRequest, match="already belongs"):
        space.complete(file.changed(overwrite=True, request_id="a third"))
    assert space.names("/") == ["f"]
    space.check_references()


def test_answers_are_forgotten_by_age_and_in_steps(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peacefs.coordinator.namespace.reclaim.requests_forgotten_per_commit", 2)
    old = [space.completion(f"/old/{n}", 1) for n in range(3)]
    for file in old:
        space.complete(file)
    space.now_ms += 86_400_000
    young = space.completion("/young", 1)
    space.complete(young)
    steps = [space.commit(lambda tx: forget_answers_step(tx, space.now_ms)) for _ in range(3)]
    assert steps == [True, False, False]
    assert space.sql("SELECT request FROM request") == [(young.file.request_id,)]
    assert space.complete(young).length == 1
    with pytest.raises(FileAlreadyExists):
        space.complete(old[0])


def test_chunk_that_is_garbage_by_now_becomes_no_file(space: Space):
    """Its token had expired, but a clock was set back. Datanodes may have deleted it."""
    known = space.completion("/known", 10)
    space.complete(known)
    late, later = space.completion("/late", 10), space.completion("/later", 10)
    space.commit(lambda tx: tx.raise_gc_floor(later.chunks[0].chunk))
    with pytest.raises(AccessDenied, match="write it again"):
        space.complete(late)
    assert space.complete(known).length == 10, "a repetition changes nothing and gets its answer"
    assert space.complete(later).length == 10
