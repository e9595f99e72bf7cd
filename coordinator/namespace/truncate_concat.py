"""Truncate and concatenate files, with HDFS's outcomes. Only references change; no data is moved."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from peacefs.coordinator.limits import concat_sources_max, rename_memory_s
from peacefs.coordinator.metadata.model import ChunkRecord, Inode, InodeKind, NamespaceUsage
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.protocol.errors import BadRequest, IllegalChange, PathIsDirectory

from .append import check_chunk_count
from .paths import NamespacePath
from .quotas import charge, directories_above, less, usage_of_file
from .reclaim import discard
from .resolution import find, find_existing
from .retry_cache import RequestKey, cache_reply, cached_reply


def truncate(tx: Transaction, path: NamespacePath, length: int, now_ms: int) -> list[ChunkRecord]:
    """Cut a file to its first `length` bytes, and fence off its writer. Return the chunks that were freed.

    Raises FileNotFound, PathIsDirectory, IllegalChange if the file is shorter.
    """
    if length < 0:
        raise IllegalChange(f"Cannot truncate to a negative file size: {length}.")
    inode = existing_file(tx, path)
    if length > inode.length:
        raise IllegalChange(
            f"Cannot truncate to a larger file size. Current size: {inode.length}, truncate size: {length}."
        )
    tx.drop_lease(inode.inode)
    if length == inode.length:
        return []
    cut = NamespaceUsage(0, (length - inode.length) * inode.replication)
    charge(tx, (directories_above(tx, inode.inode), cut))
    freed = _cut(tx, inode, length)
    tx.change_inode(structs.replace(inode, length=length, modified_ms=max(inode.modified_ms, now_ms)))
    return freed


def concat(
    tx: Transaction, target: NamespacePath, sources: Sequence[NamespacePath], now_ms: int
) -> list[ChunkRecord]:
    """Move the contents of `sources`, in order, to the end of `target`, and delete the sources.

    Does nothing if `is_repeated_concat`. Return the chunks whose replication has changed. Raises FileNotFound,
    PathIsDirectory, IllegalChange for files that HDFS does not concatenate.
    """
    inode = existing_file(tx, target)
    if is_repeated_concat(tx, target, sources, now_ms):
        return []
    check_concat(tx, target, sources)
    length, position = inode.length, tx.next_position(inode.inode)
    _charge_concat(tx, inode, [existing_file(tx, path) for path in sources])
    moved = []
    for path in sources:
        source = existing_file(tx, path)
        references = tx.references(source.inode)
        check_chunk_count(target, position + len(references))
        for reference in references:
            tx.add_reference(inode.inode, position, reference.chunk, reference.length)
            position += 1
        moved += references
        length += source.length
        parent = find(tx, path).parent
        tx.remove_entry(parent, path.name)
        tx.touch(parent, now_ms)
        freed = discard(tx, source)
        assert not freed, "the target refers to what the source referred to"
    tx.drop_lease(inode.inode)
    inode = structs.replace(inode, length=length, modified_ms=max(inode.modified_ms, now_ms))
    tx.change_inode(inode)
    trace = _trace(inode, sources)
    if cached_reply(tx, trace) is None:
        cache_reply(tx, trace, now_ms, now_ms)
    changed = [moving.chunk for moving in moved if tx.set_chunk_replication(moving.chunk, inode.replication)]
    return [record for chunk in changed if (record := tx.chunk(chunk)) is not None]


def _charge_concat(tx: Transaction, onto: Inode, sources: Sequence[Inode]) -> None:
    """Charge quotas. The target's replication applies to the bytes that it takes over."""
    gained = NamespaceUsage(0, sum(source.length for source in sources) * onto.replication)
    lost = [(directories_above(tx, source.inode), less(usage_of_file(source))) for source in sources]
    charge(tx, (directories_above(tx, onto.inode), gained), *lost)


def is_repeated_concat(
    reader: Reader, target: NamespacePath, sources: Sequence[NamespacePath], now_ms: int
) -> bool:
    """Return whether this concatenation was done a short while ago, so that the request is a repetition.

    As for a rename, the sources must be gone, and the target must be the result of the concatenation.
    """
    way = find(reader, target)
    if not way.is_whole or any(find(reader, source).is_whole for source in sources):
        return False
    first = cached_reply(reader, _trace(way.deepest, sources))
    return first is not None and now_ms - first.answer < rename_memory_s * 1000


def _trace(made: Inode, sources: Sequence[NamespacePath]) -> RequestKey:
    """Return the key of a concatenation's cached reply. It depends on the target's inode and its contents."""
    what = (made.inode, made.length, made.modified_ms, [str(path) for path in sources])
    return RequestKey(f"concat {RequestKey('', what).fingerprint().hex()}", what)


def check_concat(reader: Reader, target: NamespacePath, sources: Sequence[NamespacePath]) -> None:
    """Raise an error for files that HDFS does not concatenate."""
    if not sources:
        raise BadRequest("No sources given")
    if len(sources) > concat_sources_max:
        raise IllegalChange(f"concat: {len(sources)} source files are more than {concat_sources_max}")
    onto = existing_file(reader, target)
    seen = set()
    for path in sources:
        source = existing_file(reader, path)
        if source.inode == onto.inode:
            raise IllegalChange(f"concat: the src file {path} is the same with the target file {target}")
        if source.length == 0:
            raise IllegalChange(f"concat: source file {path} is invalid or empty or underConstruction")
        if source.block_bytes > onto.block_bytes:
            raise IllegalChange(
                f"concat: source file {path} has preferred block size {source.block_bytes} "
                f"which is greater than the target file's preferred block size {onto.block_bytes}"
            )
        seen.add(source.inode)
    if len(seen) < len(sources):
        raise IllegalChange("concat: at least two of the source files are the same")


def existing_file(reader: Reader, path: NamespacePath) -> Inode:
    """Return the inode of a file. Raises FileNotFound, PathIsDirectory."""
    inode = find_existing(reader, path)
    if inode.kind is InodeKind.DIRECTORY:
        raise PathIsDirectory(f"Path is not a file: {path}")
    return inode


def _cut(tx: Transaction, inode: Inode, length: int) -> list[ChunkRecord]:
    """Cut a file's references to a length. Return the chunks that were freed."""
    left = length
    for position, reference in enumerate(tx.references(inode.inode)):
        if left < reference.length:
            if left == 0:
                return tx.cut_references(inode.inode, position)
            tx.shorten_reference(inode.inode, position, left)
            return tx.cut_references(inode.inode, position + 1)
        left -= reference.length
    raise AssertionError(f"inode {inode.inode} has fewer bytes in chunks than its length says")
