"""Differences between two snapshots of a directory, or between a snapshot and the present.

Files and directories are identified by their inodes, as in HDFS: an entry that was moved within the directory was
renamed, an entry that was replaced was deleted and created. Of a tree that appeared or disappeared, only the top
is named. Deleted, modified and renamed entries are named by their older path, created entries and targets of
renames by their newer path.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Generator, Iterable, Iterator
from enum import Enum
from typing import Final, TypeVar

import msgspec

from peacefs.coordinator.limits import tree_entries_per_turn
from peacefs.coordinator.metadata.model import Inode, InodeId, InodeKind
from peacefs.coordinator.metadata.reader import Reader
from peacefs.protocol.errors import SnapshotRefused

# A comparison of two snapshots holds both trees in memory.
snapshot_diff_entries_max: Final = 1_000_000
#: Number of entries that are compared or sorted in one turn of the event loop.
_COMPARED_PER_TURN: Final = 300

T = TypeVar("T")


class DiffKind(Enum):
    """HDFS's words for differences."""

    CREATE = "CREATE"
    MODIFY = "MODIFY"
    DELETE = "DELETE"
    RENAME = "RENAME"


class Difference(msgspec.Struct, frozen=True, gc=False):
    """One difference, as a path relative to the directory (empty for itself); `target` is the new name.

    `parent` is the directory of the path, `new_parent` that of the target.
    """

    kind: DiffKind
    path: str
    target: str | None = None
    inode: InodeId = 0
    parent: InodeId = 0
    new_parent: InodeId = 0
    is_directory: bool = False


class _Node(msgspec.Struct, frozen=True, gc=False):
    """A file or directory of a tree. Not tracked by the garbage collector, because there are many."""

    parent: InodeId
    path: str
    inode: Inode


_Tree = dict[InodeId, _Node]


def compare(older: Reader, newer: Reader, directory: InodeId) -> Generator[None, None, list[Difference]]:
    """Compare in steps, between which other requests run. Present changes meanwhile may be seen or not.

    Raises SnapshotRefused if the trees are too large.
    """
    before = yield from _read_tree(older, directory)
    after = yield from _read_tree(newer, directory)
    differences: list[Difference] = []
    for nodes in _parts(before.items()):
        yield
        for number, was in nodes:
            node = after.get(number)
            if node is None:
                if was.parent in after:
                    differences.append(_difference(DiffKind.DELETE, was))
            elif _is_moved(was, node):
                differences.append(_difference(DiffKind.RENAME, was, node))
    for nodes in _parts(after.items()):
        yield
        differences += [
            _difference(DiffKind.CREATE, node)
            for number, node in nodes
            if number not in before and node.parent in before
        ]
    # If the clock stands still or goes back, a change does not change the directory's time.
    changed: set[InodeId] = set()
    for part in _parts(differences):
        yield
        changed.update(parent for one in part for parent in (one.parent, one.new_parent))
    for nodes in _parts(before.items()):
        yield
        differences += [
            _difference(DiffKind.MODIFY, was)
            for number, was in nodes
            if number in after and (was.inode != after[number].inode or number in changed)
        ]
    return (yield from _in_order(differences))


def _parts(found: Iterable[T]) -> Iterator[list[T]]:
    """Yield the entries to compare in one turn."""
    left = iter(found)
    while part := list(itertools.islice(left, _COMPARED_PER_TURN)):
        yield part


def _in_order(differences: list[Difference]) -> Generator[None, None, list[Difference]]:
    """Sort by path, in turns: sort parts of the list, then merge them."""
    ordered = []
    for part in _parts(differences):
        yield
        ordered.append(sorted(part, key=_order))
    merged: list[Difference] = []
    for part in _parts(heapq.merge(*ordered, key=_order)):
        yield
        merged += part
    return merged


def _order(difference: Difference) -> tuple[str, bool]:
    return difference.path, difference.kind is DiffKind.CREATE


def _difference(kind: DiffKind, node: _Node, target: _Node | None = None) -> Difference:
    moved_to, new_parent = (None, 0) if target is None else (target.path, target.parent)
    inode = node.inode
    return Difference(
        kind, node.path, moved_to, inode.inode, node.parent, new_parent, inode.kind is InodeKind.DIRECTORY
    )


def _is_moved(was: _Node, node: _Node) -> bool:
    """Return whether the entry itself was moved, rather than a directory above it."""
    return was.parent != node.parent or was.path.rpartition("/")[2] != node.path.rpartition("/")[2]


def _read_tree(reader: Reader, directory: InodeId) -> Generator[None, None, _Tree]:
    top = reader.inode(directory)
    assert top is not None, "what has snapshots is not deleted"
    tree = {directory: _Node(directory, "", top)}
    unread = [(directory, "")]
    while unread:
        parent, after = unread.pop()
        children = reader.children(parent, after, tree_entries_per_turn)
        if len(children) == tree_entries_per_turn:
            unread.append((parent, children[-1][0]))
        above = tree[parent].path
        for name, child in children:
            tree[child.inode] = _Node(parent, f"{above}/{name}" if above else name, child)
            if child.kind is InodeKind.DIRECTORY:
                unread.append((child.inode, ""))
        if len(tree) > snapshot_diff_entries_max:
            raise SnapshotRefused(
                f"The directory holds more than {snapshot_diff_entries_max} entries, too many to be compared"
            )
        yield
    return tree
