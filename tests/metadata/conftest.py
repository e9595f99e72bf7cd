"""A namespace over a store in memory with plain paths as arguments, and ways to look behind it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

import pytest
from journal.replicated_store import Replica
from msgspec.structs import replace

from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.model import (
    ChunkRecord,
    Inode,
    InodeStatus,
    Lease,
    ListPage,
    NamespaceUsage,
    Quota,
    RenameMode,
    TreeSummary,
)
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.sqlite.store import MetadataInMemory, store_in_memory
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import (
    copy as namespace_copy,
)
from peacefs.coordinator.namespace import (
    operations as namespace,
)
from peacefs.coordinator.namespace import (
    quotas,
    snapshot_restore,
    snapshots,
)
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.permissions import Principal
from peacefs.coordinator.namespace.reclaim import reclaim_step
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.messages import Receipt, WrittenChunk
from peacefs.protocol.new_file import NewFile

T = TypeVar("T")


class Completion(NamedTuple):
    """A new file, and its chunks."""

    file: NewFile
    chunks: list[WrittenChunk]

    def changed(self, **changes: Any) -> Completion:
        return self._replace(file=replace(self.file, **changes))


class Space:
    """A namespace in which each operation is a commit of its own. The clock advances a second before each."""

    def __init__(self, metadata: MetadataInMemory) -> None:
        self.metadata = metadata
        self.is_altered = False
        self.reader: Reader = metadata.reader()
        self.now_ms = 1_000_000
        # Numbers of chunks and requests begin with the epoch, as the coordinator's do.
        ((epoch,),) = self.sql("SELECT value FROM meta WHERE key = 'epoch'")
        self._numbers = itertools.count(epoch * 1_000_000 + 1)

    def commit(self, request: Callable[[Transaction], T]) -> T:
        self.now_ms += 1000
        try:
            return run_now(self.metadata, request)
        except quotas.TreeIsLarge as large:
            return self._commit_counted(request, large.directory)

    def _commit_counted(self, request: Callable[[Transaction], T], directory: int) -> T:
        """Count a large tree in one step, as `TreeCounts` does in turns, and commit."""
        at_tx = run_now(self.metadata, lambda tx: quotas.begin_count(tx, directory))
        assert at_tx is not None
        found = namespace.content_summary(self.reader.at(at_tx, directory), parse_path("/"))
        usage = NamespaceUsage(found.directories + found.files, found.space_consumed)
        run_now(self.metadata, lambda tx: tx.note_count(directory, usage))
        try:
            return run_now(self.metadata, request)
        finally:
            run_now(self.metadata, lambda tx: tx.end_count(directory, at_tx))

    def sql(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Query or change the tables directly."""
        is_look = statement.lstrip().startswith("SELECT")
        rows: list[tuple[Any, ...]] = self.metadata.imaged().execute(statement, values).fetchall()
        if not is_look:
            self.is_altered = True
            self.metadata.rows.load()
        return rows

    def chunks(self, *lengths: int) -> list[WrittenChunk]:
        """Return chunks with new ids, as acknowledged by a pipeline of two datanodes."""
        receipts = [Receipt("node-a", b"signed"), Receipt("node-b", b"signed")]
        ids = itertools.islice(self._numbers, len(lengths))
        return [WrittenChunk(n, n + 1000, length, 7, receipts) for n, length in zip(ids, lengths, strict=True)]

    def completion(self, path: str, *lengths: int, **changes: Any) -> Completion:
        request_id = f"request-{next(self._numbers)}"
        file = NewFile(path=path, user="ann", replication=2, block_bytes=1 << 26, request_id=request_id)
        return Completion(file, self.chunks(*lengths)).changed(**changes)

    def complete(self, wanted: Completion) -> namespace.Publication:
        return self.commit(lambda tx: namespace.complete_file(tx, wanted.file, wanted.chunks, self.now_ms))

    def create_many(self, paths: list[str]) -> None:
        """Create files of ten bytes in one commit."""
        for outcome in self.metadata.commit([self._creation(path) for path in paths]):
            assert outcome.error is None

    def _creation(self, path: str) -> Callable[[Transaction], namespace.Publication]:
        wanted = self.completion(path, 10)
        return lambda tx: namespace.complete_file(tx, wanted.file, wanted.chunks, self.now_ms)

    def create(self, path: str, *lengths: int, **changes: Any) -> namespace.Publication:
        return self.complete(self.completion(path, *lengths, **changes))

    def mkdirs(self, path: str, user: str = "ann", permission: int = 0o755) -> bool:
        return self.commit(lambda tx: namespace.mkdirs(tx, parse_path(path), user, permission, self.now_ms))

    def delete(self, path: str, recursive: bool = True) -> namespace.DeleteResult:
        return self.commit(lambda tx: namespace.delete(tx, parse_path(path), recursive, self.now_ms))

    def rename(self, source: str, target: str, mode: RenameMode = RenameMode.STRICT) -> namespace.RenameResult:
        return self.commit(
            lambda tx: namespace.rename(tx, parse_path(source), parse_path(target), mode, self.now_ms)
        )

    def take_lease(self, path: str, holder: str = "ann") -> tuple[Lease, Inode]:
        """Return a lease with a new number, and its file."""
        parsed, lease = parse_path(path), Lease(next(self._numbers), holder)
        inode = namespace.check_append(self.reader, parsed).inode
        return lease, self.commit(lambda tx: namespace.take_lease(tx, parsed, inode, lease))

    def extension(self, lease: Lease, inode: int, *lengths: int, **changes: Any) -> namespace.AppendToComplete:
        given: dict[str, Any] = {
            "path": "/what/it/was/called",
            "inode": inode,
            "lease": lease,
            "request_id": f"request-{next(self._numbers)}",
            "chunks": self.chunks(*lengths),
        }
        return namespace.AppendToComplete(**(given | changes))

    def extend(self, wanted: namespace.AppendToComplete) -> namespace.Publication:
        return self.commit(lambda tx: namespace.complete_append(tx, wanted, self.now_ms))

    def append(self, path: str, *lengths: int) -> namespace.Publication:
        lease, file = self.take_lease(path)
        return self.extend(self.extension(lease, file.inode, *lengths))

    def truncate(self, path: str, length: int) -> list[ChunkRecord]:
        return self.commit(lambda tx: namespace.truncate(tx, parse_path(path), length, self.now_ms))

    def concat(self, target: str, *sources: str) -> list[ChunkRecord]:
        parsed = [parse_path(source) for source in sources]
        return self.commit(lambda tx: namespace.concat(tx, parse_path(target), parsed, self.now_ms))

    def set_quota(self, path: str, names: int | None = None, space: int | None = None) -> None:
        self.commit(lambda tx: quotas.set_quota(tx, parse_path(path), names, space))

    def quota(self, path: str) -> Quota | None:
        return self.reader.quota(self.status(path).inode)

    def copy(self, source: str, target: str, limit: int = 1000, **changes: Any) -> None:
        """Copy a tree in steps of `limit`."""
        made = self.begin_copy(source, target, limit, **changes)
        while isinstance(made, namespace_copy.TreeCopy):
            made = self.go_on_copying(made, limit)

    def begin_copy(
        self, source: str, target: str, limit: int = 1000, **changes: Any
    ) -> namespace_copy.TreeCopy | namespace_copy.CopyResult:
        given: dict[str, Any] = {
            "source": parse_path(source),
            "target": parse_path(target),
            "caller": Principal("ann", frozenset({"ann"}), is_superuser=True),
            "preserve": False,
            "request_id": "",
            "now_ms": self.now_ms,
        }
        wanted = namespace_copy.CopyToMake(**(given | changes))
        return self.commit(lambda tx: namespace_copy.begin_copy(tx, wanted, limit))

    def go_on_copying(
        self, copy: namespace_copy.TreeCopy, limit: int = 1000
    ) -> namespace_copy.TreeCopy | namespace_copy.CopyResult:
        """Continue copying by one commit. If it is refused, give up the copy."""
        try:
            if copy.growth.is_whole:
                return self.commit(lambda tx: namespace_copy.finish_copy(tx, copy))
            return self.commit(lambda tx: namespace_copy.copy_step(tx, copy, limit))
        except PeacefsError:
            self.commit(lambda tx: namespace_copy.give_up_copy(tx, copy))
            raise

    def pieces(self, path: str) -> list[tuple[int, int]]:
        """Return the chunks of a file, and the used length of each; now or in a snapshot."""
        layout = namespace.layout(self.locate(path).reader, self.status(path).inode)
        return [(chunk.chunk, chunk.length) for chunk in layout]

    def reclaim(self, limit: int = 1000) -> list[ChunkRecord]:
        """Reclaim all queued trees, in steps of `limit`."""
        freed: list[ChunkRecord] = []
        more = True
        while more:
            step, more = self.commit(lambda tx: reclaim_step(tx, limit))
            freed += step
        return freed

    def allow_snapshots(self, path: str) -> None:
        self.commit(lambda tx: snapshots.allow(tx, parse_path(path)))

    def take_snapshot(self, path: str, name: str) -> None:
        self.commit(lambda tx: snapshots.create(tx, parse_path(path), name, self.now_ms))

    def drop_snapshot(self, path: str, name: str) -> None:
        self.commit(lambda tx: snapshots.delete(tx, parse_path(path), name))

    def restore(self, path: str, name: str, limit: int = 1000) -> None:
        """Restore a snapshot in steps of `limit`."""
        job = self.commit(lambda tx: snapshot_restore.begin(tx, parse_path(path), name))
        try:
            while not job.growth.is_whole:
                job = self.commit(partial(snapshot_restore.copy_step, restoration=job, limit=limit))
            self.commit(lambda tx: snapshot_restore.finish(tx, job, self.now_ms))
        except PeacefsError:
            self.commit(lambda tx: snapshot_restore.give_up(tx, job))
            raise

    def locate(self, path: str) -> snapshots.SnapshotPlace:
        return snapshots.locate(self.reader, parse_path(path))

    def status(self, path: str) -> InodeStatus:
        place = self.locate(path)
        return namespace.status(place.reader, place.path)

    def list_page(self, path: str, after: str | None = None, limit: int = 1000) -> ListPage:
        place = self.locate(path)
        return namespace.list_page(place.reader, place.path, after, limit)

    def names(self, path: str) -> list[str]:
        return [entry.name for entry in self.list_page(path).entries]

    def summary(self, path: str) -> TreeSummary:
        place = self.locate(path)
        return namespace.content_summary(place.reader, place.path)

    def check_references(self) -> None:
        """Check that each chunk's count equals its references, and that no chunk is without a reference."""
        counted = self.sql("SELECT chunk, referrers FROM chunk ORDER BY chunk")
        assert counted == self.sql("SELECT chunk, count(*) FROM reference GROUP BY chunk ORDER BY chunk")


def forget_all_the_time(metadata: MetadataInMemory) -> None:
    """Shrink all caches to almost nothing, and let the image lack at most a few entries."""
    rows = metadata.rows
    for cache in (rows.inodes, rows.names, rows.groups, rows.places, rows.single):
        cache._weight_max = 1  # type: ignore[attr-defined]
    metadata.keeper.waiting_max = 4


def space_in_memory() -> Space:
    metadata = store_in_memory(owner="root")
    metadata.begin_epoch()
    return Space(metadata)


@pytest.fixture(params=["alone", "journal"])
def space(request: pytest.FixtureRequest) -> Iterator[Space]:
    """Yield a store with a journal and a standby, which must end with equal rows; and a store alone with tiny
    caches.
    """
    if request.param == "alone":
        made = space_in_memory()
        forget_all_the_time(made.metadata)
        yield made
        made.metadata.close()
        return
    replica = Replica()
    made = Space(replica.leader)
    yield made
    # Some tests change tables by hand, without the journal.
    if not made.is_altered:
        replica.check_equal()
    replica.leader.close()
    replica.standby.close()


@pytest.fixture
def grown(space: Space) -> Space:
    """Make /d, which allows snapshots, with some files and a tree of 9 more; and /other, which does not."""
    for path in ("replaced", "moved", "deleted", "chmod", *(f"tree/{n % 3}/{n}" for n in range(9))):
        space.create(f"/d/{path}", 3, 4)
    space.create("/other/f", 5)
    space.allow_snapshots("/d")
    return space
