"""Extend files: a lease fences off all earlier writers, and a completion appends chunks, in one commit each.

Appended data gets chunks of its own, because existing chunks are sealed. Nothing of an append is visible before it
completes. An append that never completes has changed only the lease.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from peacefs.coordinator.metadata.model import ChunkRecord, Inode, InodeId, InodeKind, Lease, NamespaceUsage
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.protocol.errors import BadRequest, FileAlreadyExists, FileNotFound, LeaseExpired, PeacefsError
from peacefs.protocol.ids import ChunkId
from peacefs.protocol.messages import WrittenChunk

from .create import Publication, add_chunks
from .paths import NamespacePath, parse_path
from .quotas import charge, check_room, directories_above
from .resolution import check_writer, find, follow
from .retry_cache import RequestKey, cache_reply, cached_reply

# Maximum number of chunks of a file after APPEND or CONCAT: its layout must fit into a frame's header.
file_chunks_max: Final = 2000


@dataclass(frozen=True, slots=True)
class AppendToComplete:
    """Chunks for the end of a file, with verified receipts. `path` is the writer's name of the file.

    They replace the file's last chunks, `replaced`, and begin with the bytes of those. A writer that continues
    keeps its lease.
    """

    path: str
    inode: InodeId
    lease: Lease
    request_id: str
    chunks: Sequence[WrittenChunk]
    replaced: Sequence[ChunkId] = ()
    keeps_lease: bool = False


def check_append(reader: Reader, path: NamespacePath) -> Inode:
    """Return the file. Raises FileNotFound; FileAlreadyExists for a directory, as HDFS does."""
    return _file_to_extend(reader, path)


def take_lease(tx: Transaction, path: NamespacePath, expected: InodeId, lease: Lease) -> Inode:
    """Give a file a new lease. The holder of the earlier lease can complete nothing any more.

    Raises as `check_append` does, and LeaseExpired if there is another file at `path` now.
    """
    inode = _file_to_extend(tx, path)
    if inode.inode != expected:
        raise LeaseExpired(f"{path} has just been replaced by another file; try again")
    tx.set_lease(inode.inode, lease)
    return inode


def abandon_lease(tx: Transaction, inode: InodeId, lease: Lease) -> None:
    """End a lease. Do nothing if somebody else has it."""
    if tx.lease(inode) == lease:
        tx.drop_lease(inode)


def complete_append(tx: Transaction, wanted: AppendToComplete, now_ms: int) -> Publication:
    """Add the chunks at the end of the file, by whatever name, and end the lease if the writer is done.

    A repeated request id gets the first answer. Raises FileNotFound if the file, or a tree that held it, was
    deleted; RunSuperseded; LeaseExpired if somebody else has taken the lease; BadRequest for chunks that already
    belong to a file, or if the replaced chunks are not the file's end, or are longer than what replaces them.
    """
    key = _request_key(wanted)
    if (first := cached_reply(tx, key)) is not None:
        return Publication(first.answer, [], [])
    check_writer(tx, parse_path(wanted.path))
    inode = tx.inode(wanted.inode)
    if inode is None or not tx.is_in_tree(inode.inode):
        raise FileNotFound(f"File does not exist: {wanted.path} (inode {wanted.inode})")
    if tx.lease(inode.inode) != wanted.lease:
        owner = f"Client (={wanted.lease.holder}) is not the lease owner any more"
        raise LeaseExpired(f"{owner}: {wanted.path} (inode {wanted.inode})")
    position = tx.next_position(inode.inode) - len(wanted.replaced)
    check_chunk_count(wanted.path, position + len(wanted.chunks))
    replaced_bytes, freed = _cut_replaced(tx, inode, position, wanted)
    grown = sum(chunk.length for chunk in wanted.chunks) - replaced_bytes
    charge(tx, (directories_above(tx, inode.inode), NamespaceUsage(0, grown * inode.replication)))
    added = add_chunks(tx, inode.inode, position, inode.replication, wanted.path, wanted.chunks)
    length = inode.length + grown
    tx.change_inode(structs.replace(inode, length=length, modified_ms=max(inode.modified_ms, now_ms)))
    if not wanted.keeps_lease:
        tx.drop_lease(inode.inode)
    cache_reply(tx, key, length, now_ms)
    return Publication(length, added, freed)


def lease_published(tx: Transaction, path: NamespacePath, lease: Lease, *, before: bool) -> tuple[InodeId, Lease]:
    """Give the writer of a new file its lease, in the transaction that published it. Return inode and lease.

    If the file was published `before`, return the lease that the same holder got then. Raises LeaseExpired.
    """
    way = find(tx, path)
    if not before:
        tx.set_lease(way.last, lease)
        return way.last, lease
    recorded = tx.lease(way.last) if way.is_whole else None
    if recorded is None or recorded.holder != lease.holder:
        raise LeaseExpired(f"{path} was published, and deleted, replaced or taken over by somebody else since")
    return way.last, recorded


def check_extension(reader: Reader, inode: InodeId, written_bytes: int) -> None:
    """Check the quota before placing another chunk of an extended file. Raises BytesQuotaExceeded."""
    file = reader.inode(inode)
    if file is not None:
        space = (written_bytes + 1) * file.replication
        check_room(reader, directories_above(reader, inode), NamespaceUsage(0, space))


def check_chunk_count(path: object, chunks: int) -> None:
    """Raise HDFS's error for a file with too many blocks."""
    if chunks > file_chunks_max:
        raise PeacefsError(
            f"File has reached the limit on maximum number of blocks: {chunks} > {file_chunks_max}: {path}. "
            "Write it anew, and it has fewer"
        )


def _file_to_extend(reader: Reader, path: NamespacePath) -> Inode:
    way = follow(reader, path)
    if not way.is_whole:
        # Raise it for superusers, too: HDFS looks for the file before it checks rights.
        raise FileNotFound(f"File does not exist: {path}")
    inode = way.deepest
    if inode.kind is InodeKind.DIRECTORY:
        raise FileAlreadyExists(f"Cannot append to directory {path}; already exists as a directory.")
    return inode


def _cut_replaced(
    tx: Transaction, inode: Inode, position: int, wanted: AppendToComplete
) -> tuple[int, list[ChunkRecord]]:
    """Return how many bytes of the file were cut, and the chunks without a reference."""
    if not wanted.replaced:
        return 0, []
    last = tx.references_after(inode.inode, position - 1, len(wanted.replaced)) if position >= 0 else []
    if [reference.chunk for _, reference in last] != list(wanted.replaced):
        raise BadRequest(f"the chunks to replace are not the end of {wanted.path}")
    replaced_bytes = sum(reference.length for _, reference in last)
    if sum(chunk.length for chunk in wanted.chunks) < replaced_bytes:
        raise BadRequest(f"the end of {wanted.path} cannot be replaced by fewer bytes")
    return replaced_bytes, tx.cut_references(inode.inode, position)


def _request_key(wanted: AppendToComplete) -> RequestKey:
    chunks = [(chunk.chunk, chunk.version, chunk.length, chunk.checksum) for chunk in wanted.chunks]
    return RequestKey(wanted.request_id, (wanted.inode, chunks, list(wanted.replaced), wanted.keeps_lease))
