"""Quotas limit the names in a directory (including its own) and the bytes of all replicas.

The usage of a directory with a quota is updated with each change, in the same commit, so no write walks a tree. A
tree is counted when a quota is set on it, and when it is moved across the boundary of a quota, deleted, or
replaced below one. A small tree is counted in that transaction. For a large one, the transaction raises
TreeIsLarge; then `operations/tree_counts.py` counts it in steps, and the transaction is tried again (decision 71).
Data that only snapshots hold does not count.

Limits are checked against the present usage. They are checked again where chunks are placed, so a writer learns of
a refusal before it has written more than one chunk too many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from peacefs.coordinator.metadata.model import Inode, InodeId, InodeKind, NamespaceUsage, Quota
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.protocol.errors import (
    BadRequest,
    BytesQuotaExceeded,
    FileNotFound,
    NamesQuotaExceeded,
    PathIsNotDirectory,
)

from .paths import NamespacePath
from .resolution import find

#: For `set_quota`: no limit. HDFS's number.
NO_LIMIT: Final = -1
#: Directories, the root's first, and the change of their usage.
Charge = tuple[Sequence[InodeId], NamespaceUsage]
#: Maximum number of names that the transaction itself counts. Larger trees are counted in turns.
tree_names_counted_at_once_max: Final = 200
_UNITS: Final = ((1 << 60, "E"), (1 << 50, "P"), (1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K"))


class TreeIsLarge(Exception):
    """The usage of a directory is needed, and the directory is too large to be counted in a transaction."""

    def __init__(self, directory: InodeId) -> None:
        super().__init__(f"directory {directory} must be counted first")
        self.directory = directory


class CountUnderWay(Exception):
    """The directory is being counted already."""


def usage_of_file(inode: Inode) -> NamespaceUsage:
    """Return one name, and the bytes of all replicas."""
    return NamespaceUsage(1, inode.length * inode.replication)


def less(usage: NamespaceUsage) -> NamespaceUsage:
    """Return the usage with opposite sign."""
    return NamespaceUsage(-usage.names, -usage.bytes)


def directories_above(reader: Reader, inode: InodeId) -> list[InodeId]:
    """Return the directories above an inode, the root first; none without a path to it or quotas."""
    return [parent for parent, _ in reader.ancestors(inode)] if reader.quota_directories() else []


def charge(tx: Transaction, *charges: Charge) -> None:
    """Add changes to the usage of directories. Changes that cancel out within a directory do not count there.

    Raises NamesQuotaExceeded, BytesQuotaExceeded if a usage has grown and exceeds its limit.
    """
    with_quota = tx.quota_directories()
    if not with_quota:
        return
    names: Counter[InodeId] = Counter()
    space: Counter[InodeId] = Counter()
    for directories, change in charges:
        for directory in with_quota & set(directories):
            names[directory] += change.names
            space[directory] += change.bytes
    for directory in names.keys() | space.keys():
        change = NamespaceUsage(names[directory], space[directory])
        _check(tx, directory, change)
        tx.charge_quota(directory, change)


def check_room(reader: Reader, directories: Iterable[InodeId], change: NamespaceUsage) -> None:
    """Raise as `charge` does, but change nothing."""
    for directory in reader.quota_directories() & set(directories):
        _check(reader, directory, change)


def tree_usage(tx: Transaction, directories: Iterable[InodeId], inode: Inode) -> NamespaceUsage:
    """Return the usage of a file or tree; zero, without counting, when no directory above it has a quota.

    Raises TreeIsLarge.
    """
    if tx.quota_directories().isdisjoint(directories):
        return NamespaceUsage(0, 0)
    return usage_of_file(inode) if inode.kind is InodeKind.FILE else _usage_of_directory(tx, inode.inode)


def _usage_of_directory(tx: Transaction, directory: InodeId) -> NamespaceUsage:
    kept = tx.quota(directory)
    usage = tx.counted_usage(directory) if kept is None else kept.used
    if usage is None:
        usage = small_tree_usage(tx, directory, tree_names_counted_at_once_max)
    if usage is None:
        raise TreeIsLarge(directory)
    return usage


def small_tree_usage(reader: Reader, top: InodeId, names_max: int) -> NamespaceUsage | None:
    """Count the names and bytes of a tree, with its top; return None if it has more than `names_max` names."""
    names, space = 1, 0
    unread = [top]
    while unread:
        children = reader.children(unread.pop(), "", names_max - names + 1)
        names += len(children)
        if names > names_max:
            return None
        for _, child in children:
            if child.kind is InodeKind.DIRECTORY:
                unread.append(child.inode)
            else:
                space += child.length * child.replication
    return NamespaceUsage(names, space)


def begin_count(tx: Transaction, directory: InodeId) -> int | None:
    """Begin to count a tree; return the transaction whose state is to be counted, None if there is no need.

    Raises CountUnderWay if an earlier count has not ended.
    """
    if tx.is_counting(directory):
        raise CountUnderWay
    if tx.quota(directory) is not None or not tx.is_in_tree(directory):
        return None
    return tx.begin_count(directory)


def set_quota(tx: Transaction, path: NamespacePath, names: int | None, space: int | None) -> None:
    """Set the maximum number of names and bytes of a directory. None keeps a limit, NO_LIMIT removes it.

    The usage may exceed the new limits, as in HDFS. A directory without a quota is counted. Raises FileNotFound,
    PathIsNotDirectory, BadRequest, TreeIsLarge.
    """
    _check_limits(names, space)
    way = find(tx, path)
    inode = way.deepest
    if not way.is_whole:
        raise FileNotFound(f"Directory does not exist: {path}")
    if inode.kind is InodeKind.FILE:
        raise PathIsNotDirectory(f"`{path}': Is not a directory")
    before = tx.quota(inode.inode)
    names_max = _changed(before.names_max if before else None, names)
    bytes_max = _changed(before.bytes_max if before else None, space)
    if names_max is not None or bytes_max is not None:
        tx.set_quota(inode.inode, Quota(names_max, bytes_max, _usage_of_directory(tx, inode.inode)))
    elif before is not None:
        tx.drop_quota(inode.inode)


def _changed(before: int | None, wanted: int | None) -> int | None:
    if wanted is None:
        return before
    return None if wanted == NO_LIMIT else wanted


def _check_limits(names: int | None, space: int | None) -> None:
    if names is None and space is None:
        raise BadRequest("Neither a quota of names nor one of bytes is given")
    if (names is not None and names < 1 and names != NO_LIMIT) or (space is not None and space < NO_LIMIT):
        raise BadRequest(
            f"Invalid values for quota : {names} and {space}: a directory is a name itself, so one is the least; "
            f"bytes may be none; {NO_LIMIT} is for no limit"
        )


def _check(reader: Reader, directory: InodeId, change: NamespaceUsage) -> None:
    """Check the limits. The messages are HDFS's."""
    quota = reader.quota(directory)
    if quota is None:
        # The directory is being counted.
        return
    names, space = quota.used.names + change.names, quota.used.bytes + change.bytes
    if quota.names_max is not None and change.names > 0 and names > quota.names_max:
        raise NamesQuotaExceeded(
            f"The NameSpace quota (directories and files) of directory {_path_of(reader, directory)} is exceeded: "
            f"quota={quota.names_max} file count={names}"
        )
    if quota.bytes_max is not None and change.bytes > 0 and space > quota.bytes_max:
        raise BytesQuotaExceeded(
            f"The DiskSpace quota of {_path_of(reader, directory)} is exceeded: "
            f"quota = {quota.bytes_max} B = {_binary(quota.bytes_max)} "
            f"but diskspace consumed = {space} B = {_binary(space)}"
        )


def _path_of(reader: Reader, directory: InodeId) -> NamespacePath:
    return NamespacePath(tuple(name for _, name in reader.ancestors(directory)))


def _binary(count: int) -> str:
    """Return a number in the form 1 KB or 1.50 MB."""
    for size, letter in _UNITS:
        if count >= size:
            return f"{count // size} {letter}B" if count % size == 0 else f"{count / size:.2f} {letter}B"
    return f"{count} B"
