"""Create files: CREATE only checks. The completion creates the name and publishes the file in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peacefs.coordinator.limits import min_replication
from peacefs.coordinator.metadata.model import ChunkRecord, Inode, InodeId, InodeKind, NamespaceUsage
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.protocol.errors import AccessDenied, BadRequest, FileAlreadyExists, FileNotFound, PathError
from peacefs.protocol.ids import ChunkId
from peacefs.protocol.limits import replication_default, replication_max
from peacefs.protocol.messages import WrittenChunk
from peacefs.protocol.new_file import NewFile

from .acl_rules import inherited
from .directories import implicit_permission, make_directories, only_mode_bits
from .paths import NamespacePath, check_creatable, check_name_length, parse_path
from .quotas import charge, check_room, usage_of_file
from .reclaim import discard
from .resolution import ResolvedPath, check_not_full, existing_inode, find_place, follow
from .retry_cache import RequestKey, cached_reply, reserve_reply


@dataclass(frozen=True, slots=True)
class Publication:
    """A published file: its length, its chunks, and the chunks that the replaced file freed.

    Both lists are empty for a repeated completion.
    """

    length: int
    added: list[ChunkRecord]
    freed: list[ChunkRecord]


def check_create(reader: Reader, path: NamespacePath, file: NewFile) -> bool:
    """Return whether a file exists that would be replaced.

    Raises HDFS's errors for a CREATE that is impossible now; the completion may still fail. A quota without room
    for a single byte is refused here.
    """
    check_creatable(path)
    way = _place_for_file(reader, path, file)
    _check_room(reader, way, file.replication)
    return way.is_whole


def check_allocation(reader: Reader, path: NamespacePath, written_bytes: int, replication: int) -> None:
    """Check quotas before placing another chunk of a new file. Raises NamesQuotaExceeded, BytesQuotaExceeded."""
    _check_room(reader, follow(reader, path), (written_bytes + 1) * replication)


def _check_room(reader: Reader, way: ResolvedPath, space: int) -> None:
    replaced = way.deepest if way.is_whole else None
    check_room(reader, way.inodes, NamespaceUsage(len(way.missing), space + _freed(replaced).bytes))


def complete_file(tx: Transaction, file: NewFile, chunks: Sequence[WrittenChunk], now_ms: int) -> Publication:
    """Publish the file, with missing parents, in place of an existing file.

    Datanodes have acknowledged its chunks, and the caller has verified their receipts. A repeated request id gets
    the first answer, also if the body was sent again and lies in other chunks. The same id with another file, or
    with chunks that already belong to a file, raises BadRequest. Other errors are those of `check_create`.
    """
    path = parse_path(file.path)
    length = sum(chunk.length for chunk in chunks)
    if (first := reserve_reply(tx, _request_key(file, path, chunks), length, now_ms)) is not None:
        return Publication(first.answer, [], [])
    check_creatable(path)
    way = _place_for_file(tx, path, file)
    replaced = way.deepest if way.is_whole else None
    if replaced is None:
        check_not_full(tx, way.last)
        above = way.deepest
        parent = make_directories(
            tx, above, way.missing[:-1], file.user, implicit_permission(above, file.permission), now_ms
        )
    else:
        parent = existing_inode(tx, way.parent)
        tx.remove_entry(parent.inode, path.name)
    made = NamespaceUsage(len(way.missing), length * file.replication)
    charge(tx, (way.inodes, made), (way.inodes, _freed(replaced)))
    kept = inherited(parent.acl, only_mode_bits(file.permission), file.unmasked, is_directory=False)
    inode = tx.add_inode(
        Inode(
            inode=tx.next_inode(),
            kind=InodeKind.FILE,
            permission=kept.permission,
            owner=file.user,
            group=parent.group,
            modified_ms=now_ms,
            accessed_ms=now_ms,
            length=length,
            block_bytes=file.block_bytes,
            replication=file.replication,
            acl=kept.acl,
            from_tx=tx.tx,
        )
    )
    tx.add_entry(parent.inode, path.name, inode)
    tx.touch(parent.inode, now_ms)
    added = add_chunks(tx, inode, 0, file.replication, file.path, chunks)
    return Publication(length, added, discard(tx, replaced) if replaced else [])


def is_another_body(reader: Reader, file: NewFile, chunks: Sequence[WrittenChunk]) -> bool:
    """Return whether the file was published under its request id with other data than that of these chunks."""
    try:
        cached_reply(reader, _request_key(file, parse_path(file.path), chunks))
    except BadRequest:
        return True
    return False


def check_not_garbage(reader: Reader, path: object, chunks: Sequence[WrittenChunk]) -> None:
    """Raise AccessDenied for chunks below the floor that are not kept, because datanodes may have deleted them."""
    if any(is_garbage(reader, chunk.chunk) for chunk in chunks):
        raise _given_to_garbage(path)


def keep_chunks(tx: Transaction, path: object, chunks: Sequence[ChunkId], for_ms: int) -> None:
    """Keep chunks of an unpublished file for some more time.

    Raises AccessDenied if one of them already counts as garbage, because its writer was silent for too long.
    """
    for chunk in chunks:
        if is_garbage(tx, chunk):
            if tx.chunk(chunk) is not None:
                continue
            raise _given_to_garbage(path)
        tx.keep_chunk(chunk, for_ms)


def is_garbage(reader: Reader, chunk: ChunkId) -> bool:
    """Return whether a chunk without a file may be deleted."""
    return chunk < reader.floor() and not reader.is_kept(chunk)


def _given_to_garbage(path: object) -> AccessDenied:
    return AccessDenied(
        f"the writer of {path} was not heard of for too long, and what was written for it counts as garbage; "
        "write it again"
    )


def _freed(replaced: Inode | None) -> NamespaceUsage:
    """Return the change of usage by a replaced file, whose name stays."""
    return NamespaceUsage(0, 0 if replaced is None else -usage_of_file(replaced).bytes)


def _place_for_file(reader: Reader, path: NamespacePath, file: NewFile) -> ResolvedPath:
    way = find_place(reader, path)
    if way.is_whole:
        if way.deepest.kind is InodeKind.DIRECTORY:
            raise FileAlreadyExists(f"{path} already exists as a directory")
        if not file.overwrite:
            raise FileAlreadyExists(f"{path} already exists")
    elif len(way.missing) > 1 and not file.create_parent:
        raise FileNotFound(f"Parent directory doesn't exist: {path.ancestor(len(path.components) - 1)}")
    for name in way.missing:
        check_name_length(name)
    return way


def add_chunks(
    tx: Transaction, inode: InodeId, first: int, replication: int, path: str, chunks: Sequence[WrittenChunk]
) -> list[ChunkRecord]:
    """Add chunks to a file, from position `first`. Raises AccessDenied, BadRequest."""
    check_not_garbage(tx, path, chunks)
    added = []
    for position, chunk in enumerate(chunks, first):
        hint = tuple(receipt.node for receipt in chunk.receipts)
        record = ChunkRecord(chunk.chunk, chunk.version, chunk.length, replication, hint)
        if not tx.add_chunk(inode, position, record, chunk.checksum):
            raise BadRequest(f"a chunk of {path} already belongs to a file")
        added.append(record)
    return added


def _request_key(file: NewFile, path: NamespacePath, chunks: Sequence[WrittenChunk]) -> RequestKey:
    """Return the key of a completion. It contains the file's data: a repeated body lies in other chunks."""
    data = [(chunk.length, chunk.checksum) for chunk in chunks]
    return RequestKey(file.request_id, (str(path), data))


def checked_replication(wanted: int, path: object) -> int:
    """Return the requested number of replicas, or the default for zero. Raises PathError."""
    if wanted:
        check_replication(wanted, path)
    return wanted or replication_default


def check_replication(wanted: int, path: object) -> None:
    """Check a number of replicas. Raises PathError, which is an IOException as in HDFS."""
    if wanted < min_replication:
        raise PathError(
            f"Requested replication factor of {wanted} is less than the required minimum of {min_replication} "
            f"for {path}"
        )
    if wanted > replication_max:
        raise PathError(
            f"Requested replication factor of {wanted} exceeds maximum of {replication_max} for {path}"
        )
