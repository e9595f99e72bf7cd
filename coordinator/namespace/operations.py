"""The operations of the namespace, with HDFS's exact outcomes.

Each is a synchronous function of a transaction (or a reader, if it only reads), the request, and the time. Import
all of them from here. They look rows up by index, and never load all of something that may be large. Times are
milliseconds since 1970. Permissions are checked elsewhere (`access_checks`).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from msgspec import structs

from peacefs.coordinator.limits import list_page_entries, list_remaining_max, tree_entries_per_turn
from peacefs.coordinator.metadata.model import (
    ChunkRecord,
    FileChunk,
    InodeId,
    InodeKind,
    InodeStatus,
    ListPage,
    NamespaceUsage,
    Quota,
    TreeSummary,
    status_as,
)
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.protocol.errors import FileAlreadyExists, FileNotFound, PathIsNotEmptyDirectory
from peacefs.protocol.ids import ChunkId

from .append import (
    AppendToComplete,
    abandon_lease,
    check_append,
    check_extension,
    complete_append,
    lease_published,
    take_lease,
)
from .create import (
    Publication,
    check_allocation,
    check_create,
    check_replication,
    complete_file,
    is_another_body,
    keep_chunks,
)
from .directories import make_directories, only_mode_bits
from .paths import NamespacePath, check_creatable
from .quotas import charge, less, tree_usage
from .reclaim import discard
from .rename import RenameResult, rename
from .resolution import check_not_full, find, find_existing, find_place, follow
from .snapshots import refuse_snapshotted
from .truncate_concat import (
    check_concat,
    concat,
    existing_file,
    is_repeated_concat,
    truncate,
)

__all__ = [
    "AppendToComplete",
    "DeleteResult",
    "Publication",
    "RenameResult",
    "ReplicationResult",
    "abandon_lease",
    "check_allocation",
    "check_append",
    "check_concat",
    "check_create",
    "check_extension",
    "chunk_page",
    "complete_append",
    "complete_file",
    "concat",
    "content_summary",
    "count_tree",
    "delete",
    "existing_file",
    "is_another_body",
    "is_repeated_concat",
    "keep_chunks",
    "layout",
    "lease_published",
    "list_page",
    "mkdirs",
    "quota",
    "rename",
    "set_owner",
    "set_permission",
    "set_replication",
    "set_times",
    "status",
    "status_of_inode",
    "take_lease",
    "truncate",
]


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """The outcome: whether something was deleted, and the chunks that are already free."""

    done: bool
    freed: list[ChunkRecord]


@dataclass(frozen=True, slots=True)
class ReplicationResult:
    """The outcome: whether the path is a file, and its chunks that need more or fewer replicas than before."""

    done: bool
    changed: list[ChunkRecord]


# -- reading ---------------------------------------------------------------------------------------


def status(reader: Reader, path: NamespacePath) -> InodeStatus:
    """Return the status of a path. Raises FileNotFound, also for a path through a file, as HDFS does here."""
    way = follow(reader, path)
    if not way.is_whole:
        raise FileNotFound(f"File does not exist: {path}")
    return status_as("", way.deepest)


def status_of_inode(reader: Reader, inode: InodeId) -> InodeStatus:
    """Return the status of an open file, by whatever name. Raises FileNotFound if it is gone.

    A file in a deleted tree exists until it is reclaimed.
    """
    found = reader.inode(inode)
    if found is None:
        raise FileNotFound(f"File does not exist: it was deleted or replaced since it was opened (inode {inode})")
    return status_as("", found)


def layout(reader: Reader, inode: InodeId) -> list[FileChunk]:
    """Return the chunks of a file in order; none for an empty file, a directory, or an inode that is gone."""
    return reader.references(inode)


def list_page(
    reader: Reader,
    path: NamespacePath,
    start_after: str | None = None,
    limit: int = list_page_entries,
    *,
    remaining_max: int = list_remaining_max,
) -> ListPage:
    """Return up to `limit` entries after the name `start_after`; for a file, the file itself.

    Further entries are counted, up to `remaining_max`. Raises FileNotFound.
    """
    inode = find_existing(reader, path)
    if inode.kind is InodeKind.FILE:
        return ListPage([status_as("", inode)], 0)
    children = reader.children(inode.inode, start_after or "", limit + 1)
    if len(children) <= limit:
        return ListPage([status_as(name, child) for name, child in children], 0)
    del children[limit:]
    remaining = reader.count_children(inode.inode, children[-1][0], remaining_max)
    return ListPage([status_as(name, child) for name, child in children], remaining)


def content_summary(reader: Reader, path: NamespacePath) -> TreeSummary:
    """Count a tree, with its top. Raises FileNotFound."""
    turns = count_tree(reader, path)
    while True:
        try:
            next(turns)
        except StopIteration as stop:
            summary: TreeSummary = stop.value
            return summary


def count_tree(reader: Reader, path: NamespacePath) -> Generator[None, None, TreeSummary]:
    """Count as `content_summary` does, in short turns, however large the tree is.

    Other requests run after each page, so changes meanwhile may be counted or not.
    """
    top = find_existing(reader, path)
    if top.kind is InodeKind.FILE:
        return TreeSummary(0, 1, top.length, top.length * top.replication)
    directories, files, length, space = 1, 0, 0, 0
    unread = [(top.inode, "")]
    counted = 0
    while unread:
        directory, after = unread.pop()
        children = reader.children(directory, after, tree_entries_per_turn)
        if len(children) == tree_entries_per_turn:
            unread.append((directory, children[-1][0]))
        counted += len(children) + 1
        if counted > tree_entries_per_turn:
            counted = 0
            yield
        for _, child in children:
            if child.kind is InodeKind.DIRECTORY:
                directories += 1
                unread.append((child.inode, ""))
            else:
                files += 1
                length += child.length
                space += child.length * child.replication
    return TreeSummary(directories, files, length, space)


def quota(reader: Reader, path: NamespacePath) -> Quota | None:
    """Return the quota of the directory itself; None also if the path does not exist."""
    way = follow(reader, path)
    return reader.quota(way.last) if way.is_whole else None


def chunk_page(reader: Reader, after: ChunkId, limit: int) -> list[ChunkRecord]:
    """Return a page of all chunks after an id, in order. Begin after 0."""
    return reader.chunks(after, limit)


# -- changing --------------------------------------------------------------------------------------


def mkdirs(
    tx: Transaction, path: NamespacePath, user: str, permission: int, now_ms: int, unmasked: int | None = None
) -> bool:
    """Make a directory and its parents. Return True, also if it exists. Raises FileAlreadyExists for a file.

    `unmasked` is the permission before the client's own mask: see `acl_rules.inherited`.
    """
    check_creatable(path)
    way = find_place(tx, path)
    deepest, missing = way.deepest, way.missing
    if not missing:
        if deepest.kind is InodeKind.FILE:
            raise FileAlreadyExists(f"Path is not a directory: {path}")
        return True
    check_not_full(tx, deepest.inode)
    charge(tx, (way.inodes, NamespaceUsage(len(missing), 0)))
    if len(missing) > 1:
        # As in HDFS, the owner may enter and write the implicit directories, and none of them is sticky.
        above = permission & 0o777 | 0o300
        deepest = make_directories(tx, deepest, missing[:-1], user, above, now_ms, unmasked)
    make_directories(tx, deepest, missing[-1:], user, permission, now_ms, unmasked)
    return True


def delete(tx: Transaction, path: NamespacePath, recursive: bool, now_ms: int) -> DeleteResult:
    """Remove a name. A file is reclaimed now, a tree later.

    Raises PathIsNotEmptyDirectory without `recursive`, SnapshotRefused if there are snapshots. The root is never
    deleted: the answer is False, as in HDFS.
    """
    way = find(tx, path)
    if not way.is_whole:
        return DeleteResult(False, [])
    inode = way.deepest
    if not recursive and inode.kind is InodeKind.DIRECTORY and tx.has_children(inode.inode):
        raise PathIsNotEmptyDirectory(f"{path} is non empty")
    if path.is_root:
        return DeleteResult(False, [])
    refuse_snapshotted(tx, inode.inode, path)
    above = way.inodes[:-1]
    charge(tx, (above, less(tree_usage(tx, above, inode))))
    tx.remove_entry(way.parent, path.name)
    tx.touch(way.parent, now_ms)
    return DeleteResult(True, discard(tx, inode))


def set_times(tx: Transaction, path: NamespacePath, modified_ms: int | None, accessed_ms: int | None) -> None:
    """Set the times that are not None. Raises FileNotFound."""
    inode = find_existing(tx, path)
    tx.change_inode(
        structs.replace(
            inode,
            modified_ms=inode.modified_ms if modified_ms is None else modified_ms,
            accessed_ms=inode.accessed_ms if accessed_ms is None else accessed_ms,
        )
    )


def set_permission(tx: Transaction, path: NamespacePath, permission: int) -> None:
    """Set the permission. Raises FileNotFound."""
    tx.change_inode(structs.replace(find_existing(tx, path), permission=only_mode_bits(permission)))


def set_owner(tx: Transaction, path: NamespacePath, owner: str | None, group: str | None) -> None:
    """Set the names that are not None. Raises FileNotFound."""
    inode = find_existing(tx, path)
    tx.change_inode(structs.replace(inode, owner=owner or inode.owner, group=group or inode.group))


def set_replication(tx: Transaction, path: NamespacePath, replication: int) -> ReplicationResult:
    """Set how many replicas the chunks of a file need; return False for a directory.

    A chunk that several files share keeps the largest number that any of them has asked for.
    """
    check_replication(replication, path)
    way = find(tx, path)
    inode = way.deepest
    if not way.is_whole or inode.kind is InodeKind.DIRECTORY:
        return ReplicationResult(False, [])
    charge(tx, (way.inodes, NamespaceUsage(0, inode.length * (replication - inode.replication))))
    tx.change_inode(structs.replace(inode, replication=replication))
    changed = []
    for reference in tx.references(inode.inode):
        if tx.set_chunk_replication(reference.chunk, replication):
            record = tx.chunk(reference.chunk)
            assert record is not None
            changed.append(record)
    return ReplicationResult(True, changed)
