"""Random operations against a model: a tree of dictionaries that knows HDFS's rules in its own, simpler words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from peacefs.coordinator import namespace
from peacefs.coordinator.paths import parse_path
from peacefs.coordinator.records import ContentSummary, Kind, RenameMode
from peacefs.coordinator.reclaim import reclaim_step
from peacefs.protocol.errors import (
    AccessDenied,
    FileAlreadyExists,
    FileNotFound,
    ParentNotDirectory,
    PathIsNotEmptyDirectory,
    PeacefsError,
    RenameRefused,
)

from .conftest import Space, space_in_memory

#: A directory is a dictionary, a file the tuple of its chunks' ids.
Tree = dict[str, Any]
Names = tuple[str, ...]


class Refused(Exception):
    """The model's error: the class that is expected."""

    def __init__(self, error: type[PeacefsError]) -> None:
        self.error = error


class Model:
    """Says what should be. Rename replays are told by `came_from`: the target's path and where it came from."""

    def __init__(self) -> None:
        self.root: Tree = {}
        self.came_from: dict[int, str] = {}

    def at(self, names: Names, through_file: type[PeacefsError]) -> Any:
        """What is there, or None."""
        node: Any = self.root
        for name in names:
            if not isinstance(node, dict):
                raise Refused(through_file)
            node = node.get(name)
            if node is None:
                return None
        return node

    def parent(self, names: Names, make: bool) -> Tree:
        node = self.root
        for name in names[:-1]:
            node = node.setdefault(name, {}) if make else node[name]
        return node

    def mkdirs(self, names: Names) -> None:
        there = self.at(names, ParentNotDirectory)
        if isinstance(there, tuple):
            raise Refused(FileAlreadyExists)
        if there is None:
            self.parent(names, make=True)[names[-1]] = {}

    def create(self, names: Names, chunks: tuple[int, ...], overwrite: bool, create_parent: bool) -> None:
        there = self.at(names, ParentNotDirectory)
        if isinstance(there, dict) or (isinstance(there, tuple) and not overwrite):
            raise Refused(FileAlreadyExists)
        if there is None and not create_parent and self.at(names[:-1], ParentNotDirectory) is None:
            raise Refused(FileNotFound)
        self.parent(names, make=True)[names[-1]] = Entry(chunks)

    def delete(self, names: Names, recursive: bool) -> bool:
        there = self.at(names, AccessDenied)
        if there is None:
            return False
        if isinstance(there, dict) and there and not recursive:
            raise Refused(PathIsNotEmptyDirectory)
        if not names:
            return False
        del self.parent(names, make=False)[names[-1]]
        return True


class Entry(tuple[int, ...]):
    """A file's chunks; a class of its own so that two empty files are not the same object."""


def rename_in_model(model: Model, source: Names, target: Names, mode: RenameMode) -> bool:
    """LEGACY first as HDFS describes it: like `mv` into a directory, and false instead of an error."""
    moved = model.at(source, AccessDenied)
    if mode is RenameMode.LEGACY:
        if isinstance(model.at(target, ParentNotDirectory), dict) and source:
            target = (*target, source[-1])
        if moved is not None and source and source == target:
            return True
        if model.at(target, ParentNotDirectory) is not None:
            return False
    there = model.at(target, ParentNotDirectory)
    try:
        if moved is None:
            raise Refused(FileNotFound)
        if source == () or (target != source and (target == () or target[: len(source)] == source)):
            raise Refused(RenameRefused)
        if source == target:
            raise Refused(FileAlreadyExists)
        if there is not None:
            if isinstance(there, dict) != isinstance(moved, dict):
                raise Refused(RenameRefused)
            if mode is not RenameMode.OVERWRITE:
                raise Refused(FileAlreadyExists)
            if isinstance(there, dict) and there:
                raise Refused(RenameRefused)
        elif model.at(target[:-1], ParentNotDirectory) is None:
            raise Refused(FileNotFound)
    except Refused:
        if mode is RenameMode.LEGACY:
            return False
        raise
    model.parent(target, make=False)[target[-1]] = moved
    del model.parent(source, make=False)[source[-1]]
    return True


def text(names: Names) -> str:
    return "/" + "/".join(names)


def compare(space: Space, tree: Tree, names: Names = ()) -> ContentSummary:
    """Walks both trees. What a summary of this directory should be."""
    entries = space.list_page(text(names)).entries
    assert [entry.name for entry in entries] == sorted(tree), text(names)
    directories, files, length = 1, 0, 0
    for entry in entries:
        node = tree[entry.name]
        path = (*names, entry.name)
        status = space.status(text(path))
        assert (status.kind, status.inode) == (entry.kind, entry.inode)
        if isinstance(node, dict):
            assert entry.kind is Kind.DIRECTORY
            below = compare(space, node, path)
            directories, files, length = (
                directories + below.directories, files + below.files, length + below.length,
            )  # fmt: skip
        else:
            assert entry.kind is Kind.FILE
            assert tuple(chunk.chunk for chunk in namespace.layout(space.reader, entry.inode)) == tuple(node)
            assert entry.length == 10 * len(node)
            files, length = files + 1, length + entry.length
    summary = ContentSummary(directories, files, length, 2 * length)
    assert space.summary(text(names)) == summary
    return summary


def chunks_of(tree: Tree) -> set[int]:
    return {chunk for node in tree.values() for chunk in (chunks_of(node) if isinstance(node, dict) else node)}


names = st.lists(st.sampled_from("abc"), max_size=3).map(tuple)
below_root = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(tuple)
operations = st.one_of(
    st.tuples(st.just("mkdirs"), names),
    st.tuples(st.just("create"), below_root, st.integers(0, 3), st.booleans(), st.booleans()),
    st.tuples(st.just("rename"), names, names, st.sampled_from(RenameMode)),
    st.tuples(st.just("delete"), names, st.booleans()),
    st.tuples(st.just("reclaim"), st.integers(1, 5)),
)


def attempt(operation: Callable[[], Any], error: type[Exception]) -> Any:
    """The answer, or the class of the error that it raised."""
    try:
        return operation()
    except error as raised:
        return raised.error if isinstance(raised, Refused) else type(raised)


@settings(max_examples=150, stateful_step_count=30, deadline=None)
@given(st.lists(operations, max_size=25))
def test_any_sequence_of_operations_does_what_the_model_says(sequence: list[tuple[Any, ...]]) -> None:
    space, model = space_in_memory(), Model()
    freed: list[int] = []
    for name, *arguments in sequence:
        # An hour passes between any two: a rename of what is gone is no replay, and the model need not know of them.
        space.now_ms += 3_600_000
        if name == "mkdirs":
            (path,) = arguments
            done = attempt(lambda path=path: space.mkdirs(text(path)), PeacefsError)
            expected = attempt(lambda path=path: model.mkdirs(path), Refused) or True
        elif name == "create":
            path, chunks, overwrite, create_parent = arguments
            file = space.completion(text(path), *[10] * chunks, overwrite=overwrite, create_parent=create_parent)
            checked = attempt(
                lambda: namespace.check_create(space.reader, parse_path(text(path)), overwrite, create_parent),
                PeacefsError,
            )
            done = attempt(lambda: space.complete(file), PeacefsError)
            if isinstance(done, namespace.Publication):
                freed += [chunk.chunk for chunk in done.freed]
                done = None
            assert checked == done
            ids = tuple(chunk.chunk for chunk in file.chunks)
            expected = attempt(lambda: model.create(path, ids, overwrite, create_parent), Refused)
        elif name == "rename":
            source, target, mode = arguments
            done = attempt(lambda: space.rename(text(source), text(target), mode), PeacefsError)
            if isinstance(done, namespace.RenameResult):
                freed += [chunk.chunk for chunk in done.freed]
                done = done.done
            expected = attempt(lambda: rename_in_model(model, source, target, mode), Refused)
        elif name == "delete":
            path, recursive = arguments
            done = attempt(lambda: space.delete(text(path), recursive), PeacefsError)
            if isinstance(done, namespace.DeleteResult):
                freed += [chunk.chunk for chunk in done.freed]
                done = done.done
            expected = attempt(lambda: model.delete(path, recursive), Refused)
        else:
            (limit,) = arguments
            freed += [chunk.chunk for chunk in space.commit(lambda tx: reclaim_step(tx, limit))[0]]
            done = expected = None
        assert done == expected, (name, arguments)
        space.check_references()
    compare(space, model.root)
    freed += [chunk.chunk for chunk in space.reclaim(limit=2)]
    compare(space, model.root)
    space.check_references()
    there = {chunk.chunk for chunk in namespace.chunk_page(space.reader, 0, 1000)}
    assert there == chunks_of(model.root)
    assert len(freed) == len(set(freed)) and not there & set(freed), "freed once, and never what is in use"
    ((inodes,),), ((entries,),) = space.sql("SELECT count(*) FROM inode"), space.sql("SELECT count(*) FROM entry")
    assert inodes == entries + 1, "nothing is left of what was deleted"
    space.metadata.close()
