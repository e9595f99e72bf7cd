"""Random operations: outcomes and trees equal the model's, and chunks are freed exactly when unused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.long_runs import often

from peacefs.coordinator.limits import rename_memory_s
from peacefs.coordinator.metadata.model import ChunkRecord, Inode, InodeKind, Lease, RenameMode, TreeSummary
from peacefs.coordinator.metadata.sqlite.check import check_tables
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.reclaim import reclaim_step
from peacefs.protocol.errors import PeacefsError

from .conftest import space_in_memory
from .tree_model import File, Names, Refused, Tree, TreeModel, chunks_of

PATHS = st.lists(st.sampled_from("abc"), max_size=3).map(tuple)
PATHS_OF_FILES = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(tuple)
SNAPSHOTS = st.sampled_from("st")
CHUNK_BYTES = 10


def text(names: Names) -> str:
    return "/" + "/".join(names)


def outcome(operation: Callable[[], Any]) -> Any:
    """Return the answer, or the class of the error."""
    try:
        return operation()
    except PeacefsError as error:
        return type(error)
    except Refused as refused:
        return refused.error


class NamespaceMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.space = space_in_memory()
        self.model = TreeModel()
        self.freed: list[int] = []
        self.writers: list[tuple[Lease, Inode, File]] = []

    def free(self, records: list[ChunkRecord]) -> None:
        self.freed += [record.chunk for record in records]

    @rule(path=PATHS)
    def mkdirs(self, path: Names) -> None:
        assert outcome(lambda: self.space.mkdirs(text(path))) == outcome(lambda: self.model.mkdirs(path))

    @rule(path=PATHS_OF_FILES, chunks=st.integers(0, 3), overwrite=st.booleans(), create_parent=st.booleans())
    def create(self, path: Names, chunks: int, overwrite: bool, create_parent: bool) -> None:
        file = self.space.completion(
            text(path), *[CHUNK_BYTES] * chunks, overwrite=overwrite, create_parent=create_parent
        )
        made = File([(chunk.chunk, chunk.length) for chunk in file.chunks])
        is_there = isinstance(outcome(lambda: self.model.at(path, PeacefsError)), File)
        expected = outcome(lambda: self.model.create(path, made, overwrite, create_parent))
        reader = self.space.reader
        checked = outcome(lambda: namespace.check_create(reader, parse_path(file.file.path), file.file))
        assert checked == (is_there if expected is None else expected)
        assert expected == outcome(lambda: self.free(self.space.complete(file).freed))

    @rule(path=PATHS)
    def begin_to_append(self, path: Names) -> None:
        taken = outcome(lambda: self.space.take_lease(text(path)))
        file = outcome(lambda: self.model.extendable(path))
        if not isinstance(file, File):
            assert taken == file
            return
        lease, inode = taken
        file.lease = lease.number
        self.writers.append((lease, inode, file))

    @rule(which=st.integers(0, 5), chunks=st.integers(0, 2))
    def finish_to_append(self, which: int, chunks: int) -> None:
        """Finish one of the started appends, perhaps an old one, perhaps one that was finished before."""
        if not self.writers:
            return
        lease, inode, file = self.writers[which % len(self.writers)]
        wanted = self.space.extension(lease, inode.inode, *[CHUNK_BYTES] * chunks)
        pieces = [(chunk.chunk, chunk.length) for chunk in wanted.chunks]
        done = outcome(lambda: self.space.extend(wanted).length)
        expected = outcome(lambda: self.model.complete_append(file, lease.number, pieces))
        assert done == (file.length if expected is None else expected)

    @rule(path=PATHS, length=st.integers(0, 5 * CHUNK_BYTES))
    def truncate(self, path: Names, length: int) -> None:
        done = outcome(lambda: self.free(self.space.truncate(text(path), length)))
        assert done == outcome(lambda: self.model.truncate(path, length))

    @rule(onto=PATHS, sources=st.lists(PATHS, min_size=1, max_size=3))
    def concat(self, onto: Names, sources: list[Names]) -> None:
        def concat() -> None:
            assert self.space.concat(text(onto), *map(text, sources)) == [], "all files have one replication"

        assert outcome(concat) == outcome(lambda: self.model.concat(onto, sources))

    @rule(source=PATHS, onto=PATHS, mode=st.sampled_from(RenameMode))
    def rename(self, source: Names, onto: Names, mode: RenameMode) -> None:
        # It is too late for a replay of an earlier request, which the model does not know.
        self.space.now_ms += int(rename_memory_s * 1000)

        def rename() -> bool:
            result = self.space.rename(text(source), text(onto), mode)
            self.free(result.freed)
            return result.done

        assert outcome(rename) == outcome(lambda: self.model.rename(source, onto, mode))

    @rule(source=PATHS, onto=PATHS, limit=st.integers(1, 5))
    def copy(self, source: Names, onto: Names, limit: int) -> None:
        assert outcome(lambda: self.space.copy(text(source), text(onto), limit)) == outcome(
            lambda: self.model.copy(source, onto)
        )

    @rule(path=PATHS, recursive=st.booleans())
    def delete(self, path: Names, recursive: bool) -> None:
        def delete() -> bool:
            result = self.space.delete(text(path), recursive)
            self.free(result.freed)
            return result.done

        assert outcome(delete) == outcome(lambda: self.model.delete(path, recursive))

    @rule(path=PATHS)
    def allow_snapshots(self, path: Names) -> None:
        assert outcome(lambda: self.space.allow_snapshots(text(path))) == outcome(
            lambda: self.model.allow_snapshots(path)
        )

    @rule(path=PATHS, name=SNAPSHOTS)
    def take_snapshot(self, path: Names, name: str) -> None:
        self.allow_snapshots(path)
        assert outcome(lambda: self.space.take_snapshot(text(path), name)) == outcome(
            lambda: self.model.take_snapshot(path, name)
        )

    @rule(path=PATHS, name=SNAPSHOTS)
    def drop_snapshot(self, path: Names, name: str) -> None:
        assert outcome(lambda: self.space.drop_snapshot(text(path), name)) == outcome(
            lambda: self.model.drop_snapshot(path, name)
        )

    @rule(path=PATHS, name=SNAPSHOTS, limit=st.integers(1, 5))
    def restore(self, path: Names, name: str, limit: int) -> None:
        assert outcome(lambda: self.space.restore(text(path), name, limit)) == outcome(
            lambda: self.model.restore(path, name)
        )

    @rule(path=PATHS, limit=st.sampled_from([-1, 1_000_000]))
    def set_quota(self, path: Names, limit: int) -> None:
        """Set a quota that is never reached. A directory's recorded usage must stay equal to its contents."""
        outcome(lambda: self.space.set_quota(text(path), limit, limit))

    @rule()
    def look_at_quotas(self) -> None:
        self.check()

    @rule()
    def look_at_snapshots(self) -> None:
        for names, name, tree in self.model.all_snapshots():
            self.compare(tree, (*names, ".snapshot", name))

    @rule(limit=st.integers(1, 5))
    def reclaim_a_little(self, limit: int) -> None:
        self.free(self.space.commit(lambda tx: reclaim_step(tx, limit))[0])

    @invariant()
    def chunks_are_counted(self) -> None:
        self.space.check_references()

    def check(self) -> None:
        assert check_tables(self.space.metadata.imaged(), lambda *_: None).problems == []

    def teardown(self) -> None:
        self.compare(self.model.root, ())
        self.check()
        self.free(self.space.reclaim(limit=2))
        self.compare(self.model.root, ())
        self.check()
        self.look_at_snapshots()
        shown = {chunk for _, _, tree in self.model.all_snapshots() for chunk in chunks_of(tree)}
        assert self.chunks() == chunks_of(self.model.root) | shown
        for names, name, _ in self.model.all_snapshots():
            self.space.drop_snapshot(text(names), name)
        self.free(self.space.reclaim(limit=2))
        self.compare(self.model.root, ())
        there = self.chunks()
        assert there == chunks_of(self.model.root)
        assert len(self.freed) == len(set(self.freed)) and not there & set(self.freed)
        ((inodes,),) = self.space.sql("SELECT count(*) FROM inode")
        assert self.space.sql("SELECT count(*) FROM entry") == [(inodes - 1,)], "only the root has no name"
        self.space.metadata.close()

    def chunks(self) -> set[int]:
        return {record.chunk for record in namespace.chunk_page(self.space.reader, 0, 10_000)}

    def compare(self, tree: Tree, names: Names) -> TreeSummary:
        """Compare a directory and everything below with the model. Return its expected and actual summary."""
        entries = self.space.list_page(text(names)).entries
        assert [entry.name for entry in entries] == sorted(tree)
        directories, files, length = 1, 0, 0
        for entry in entries:
            node, path = tree[entry.name], (*names, entry.name)
            assert self.space.status(text(path)).inode == entry.inode
            assert entry.kind is (InodeKind.DIRECTORY if isinstance(node, dict) else InodeKind.FILE)
            if isinstance(node, dict):
                below = self.compare(node, path)
                directories += below.directories
                files += below.files
                length += below.length
            else:
                assert self.space.pieces(text(path)) == node.pieces
                assert entry.length == node.length
                files += 1
                length += entry.length
        summary = TreeSummary(directories, files, length, 2 * length)
        assert self.space.summary(text(names)) == summary
        return summary


TestNamespaceAgainstModel = NamespaceMachine.TestCase
TestNamespaceAgainstModel.settings = settings(max_examples=often(40, 100), stateful_step_count=30, deadline=None)
