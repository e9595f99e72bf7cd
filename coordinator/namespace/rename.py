"""Rename: atomic, with the outcomes of HDFS in its three modes.

    what is there                          LEGACY                STRICT               OVERWRITE
    -----------------------------------    ------------------    -----------------    -----------------
    the target's way leads through a file  ParentNotDirectory    ParentNotDirectory   ParentNotDirectory
    the source's way leads through a file  PathThroughFile       PathThroughFile      PathThroughFile
    no source                              false                 FileNotFound         FileNotFound
    the source is the root                 false                 RenameRefused        RenameRefused
    the target is the source               true (1)              FileAlreadyExists    FileAlreadyExists
    the target lies under the source       false                 RenameRefused        RenameRefused
    the target is the root                 moves into it         RenameRefused        RenameRefused
    the target is a file, source a file    false                 FileAlreadyExists    replaced
    the target is empty, both directories  moves into it         FileAlreadyExists    replaced
    the target is full, both directories   moves into it         FileAlreadyExists    RenameRefused
    one a file, the other a directory      false (2)             RenameRefused        RenameRefused
    the target's parent is missing         false                 FileNotFound         FileNotFound

"Moves into it" means that the target is taken to be its child of the source's name: what exists there, be it a
directory, is in the way (false). (1) So a directory onto itself moves under itself: false. (2) A file moves into
a directory.

If the source is gone and the target was recently renamed from it, the answer of that rename was lost: the
repetition succeeds, in every mode.

`exchange` swaps what two names of one directory refer to, for several pairs in one commit. So a prepared tree can
replace another one, which still exists afterwards. Both names of a pair are in one directory, so no tree crosses
the boundary of a quota.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peacefs.coordinator.limits import rename_memory_s
from peacefs.coordinator.metadata.model import (
    ChunkRecord,
    Inode,
    InodeId,
    InodeKind,
    NamespaceUsage,
    Origin,
    RenameMode,
)
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.protocol.errors import FileAlreadyExists, FileNotFound, IllegalChange, PathError, RenameRefused

from .paths import NamespacePath, check_creatable, check_name_length
from .quotas import charge, less, tree_usage
from .reclaim import discard
from .resolution import ResolvedPath, check_not_full, find, find_place
from .snapshots import refuse_snapshotted


@dataclass(frozen=True, slots=True)
class RenameResult:
    """The outcome: whether it was done (always, unless LEGACY), and the chunks that the replaced file freed."""

    done: bool
    freed: list[ChunkRecord]


def rename(
    tx: Transaction, source: NamespacePath, target: NamespacePath, mode: RenameMode, now_ms: int
) -> RenameResult:
    """Move `source` to `target`. Raises an error or returns False, as in the table above."""
    check_creatable(target)
    from_way = find(tx, source)
    to_way = find_place(tx, target)
    if _is_repeated(tx, from_way, to_way, now_ms):
        return RenameResult(True, [])
    if mode is RenameMode.LEGACY:
        to_way = _into_directory(tx, to_way, source.name)
        if _is_repeated(tx, from_way, to_way, now_ms):
            return RenameResult(True, [])
    if mode is RenameMode.LEGACY and from_way.is_whole and to_way.path == source:
        return RenameResult(not source.is_root, [])
    try:
        replaced = _check(tx, from_way, to_way, mode)
    except (PathError, RenameRefused):
        if mode is RenameMode.LEGACY:
            return RenameResult(False, [])
        raise
    check_name_length(to_way.path.name)
    if replaced is None and to_way.parent != from_way.parent:
        check_not_full(tx, to_way.parent)
    return RenameResult(True, _move(tx, from_way, to_way, replaced, now_ms))


def _into_directory(tx: Transaction, target: ResolvedPath, name: str) -> ResolvedPath:
    """Return the target, or its child if the target is a directory."""
    if not name or not target.is_whole or target.deepest.kind is InodeKind.FILE:
        return target
    path, child = target.path.child(name), tx.child_inode(target.last, name)
    if child is None:
        return ResolvedPath(path, target.inodes, target.deepest, is_whole=False)
    return ResolvedPath(path, [*target.inodes, child.inode], child, is_whole=True)


def _is_repeated(tx: Transaction, source: ResolvedPath, target: ResolvedPath, now_ms: int) -> bool:
    if source.is_whole or not target.is_whole or target.path.is_root:
        return False
    origin = tx.origin(target.parent, target.path.name)
    if origin is None or origin.path != str(source.path):
        return False
    return now_ms - origin.renamed_ms < rename_memory_s * 1000


def _check(tx: Transaction, source: ResolvedPath, target: ResolvedPath, mode: RenameMode) -> Inode | None:
    """Check the rename. Return the inode that it replaces, if there is one."""
    if not source.is_whole:
        raise FileNotFound(f"rename source {source.path} is not found.")
    if source.path.is_root:
        raise RenameRefused("rename source cannot be the root")
    if target.path == source.path:
        raise FileAlreadyExists(f"The source {source.path} and destination {target.path} are the same")
    if target.path.is_under(source.path):
        raise RenameRefused(f"Rename destination {target.path} is a directory or file under source {source.path}")
    if target.path.is_root:
        raise RenameRefused("rename destination cannot be the root")
    if target.is_whole:
        return _check_replaced(tx, source, target, mode)
    if len(target.missing) > 1:
        raise FileNotFound(f"rename destination parent {target.path} not found.")
    return None


def _check_replaced(tx: Transaction, source: ResolvedPath, target: ResolvedPath, mode: RenameMode) -> Inode:
    moved, replaced = source.deepest, target.deepest
    if moved.kind is not replaced.kind:
        kinds = "directories" if moved.kind is InodeKind.DIRECTORY else "files"
        raise RenameRefused(f"Source {source.path} and destination {target.path} must both be {kinds}")
    if mode is not RenameMode.OVERWRITE:
        raise FileAlreadyExists(f"rename destination {target.path} already exists")
    if tx.has_children(replaced.inode):
        raise RenameRefused(f"rename destination directory is not empty: {target.path}")
    return replaced


def _move(
    tx: Transaction, source: ResolvedPath, target: ResolvedPath, replaced: Inode | None, now_ms: int
) -> list[ChunkRecord]:
    refuse_snapshotted(tx, source.last, source.path)
    if replaced is not None:
        refuse_snapshotted(tx, replaced.inode, target.path)
    _charge(tx, source, target, replaced)
    tx.remove_entry(source.parent, source.path.name)
    if replaced is not None:
        tx.remove_entry(target.parent, target.path.name)
    tx.add_entry(target.parent, target.path.name, source.last, Origin(str(source.path), now_ms))
    tx.touch(source.parent, now_ms)
    if target.parent != source.parent:
        tx.touch(target.parent, now_ms)
    return discard(tx, replaced) if replaced is not None else []


def _charge(tx: Transaction, source: ResolvedPath, target: ResolvedPath, replaced: Inode | None) -> None:
    """Charge quotas. A tree that crosses no boundary of a quota is not counted."""
    leaves = source.inodes[:-1]
    enters = target.inodes[:-1] if target.is_whole else target.inodes
    freed = NamespaceUsage(0, 0) if replaced is None else tree_usage(tx, enters, replaced)
    moved = tree_usage(tx, set(leaves) ^ set(enters), source.deepest)
    charge(tx, (leaves, less(moved)), (enters, moved), (enters, less(freed)))


Pair = tuple[NamespacePath, NamespacePath]


def exchange(tx: Transaction, pairs: Sequence[Pair], now_ms: int) -> None:
    """Exchange pairs of names. Raises FileNotFound, SnapshotRefused, IllegalChange for two directories."""
    for one, other in pairs:
        if one.is_root or other.is_root or one == other or one.components[:-1] != other.components[:-1]:
            raise IllegalChange(f"{one} and {other} are not two names of one directory")
    for one, other in pairs:
        parent, first = _existing(tx, one)
        _, second = _existing(tx, other)
        refuse_snapshotted(tx, first, one)
        refuse_snapshotted(tx, second, other)
        tx.remove_entry(parent, one.name)
        tx.remove_entry(parent, other.name)
        tx.add_entry(parent, one.name, second)
        tx.add_entry(parent, other.name, first)
        tx.touch(parent, now_ms)


def _existing(tx: Transaction, path: NamespacePath) -> tuple[InodeId, InodeId]:
    """Return the directory of a path, and the inode at the path."""
    way: ResolvedPath = find(tx, path)
    if not way.is_whole:
        raise FileNotFound(f"File does not exist: {path}")
    return way.parent, way.last
