"""Differences between two snapshots of a directory, or between one and the present.

Files and directories are known by their inodes, as in HDFS: what was moved within the directory was renamed, what
was replaced was deleted and created. Of a tree that came or went only the top is named. What was deleted, modified
or renamed is named by its older path, what was created, or renamed to, by its newer one.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from peacefs.coordinator.limits import list_page_entries
from peacefs.coordinator.metadata.model import Inode, InodeId, InodeKind
from peacefs.coordinator.metadata.reader import Reader
from peacefs.protocol.errors import SnapshotRefused

# A comparison of two snapshots holds both trees in memory.
snapshot_diff_entries_max: Final = 1_000_000


class DiffKind(Enum):
    """HDFS's words."""

    CREATE = "CREATE"
    MODIFY = "MODIFY"
    DELETE = "DELETE"
    RENAME = "RENAME"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference, of a path relative to the directory, empty for itself; `target` is its new name.

    `parent` is the directory that it lay in, or was made in, `new_parent` that of the target.
    """

    kind: DiffKind
    path: str
    target: str | None = None
    inode: InodeId = 0
    parent: InodeId = 0
    new_parent: InodeId = 0
    is_directory: bool = False


@dataclass(frozen=True, slots=True)
class _Node:
    parent: InodeId
    path: str
    inode: Inode


_Tree = dict[InodeId, _Node]


def compare(older: Reader, newer: Reader, directory: InodeId) -> Generator[None, None, list[Difference]]:
    """Step by step, so that others get their turn; what changes meanwhile in the present may be seen or not.

    Raises SnapshotRefused for trees that are too large to be compared.
    """
    before = yield from _read_tree(older, directory)
    after = yield from _read_tree(newer, directory)
    differences = []
    for number, was in before.items():
        node = after.get(number)
        if node is None:
            if was.parent in after:
                differences.append(_difference(DiffKind.DELETE, was))
            continue
        if _is_moved(was, node):
            differences.append(_difference(DiffKind.RENAME, was, node))
    differences += [
        _difference(DiffKind.CREATE, node)
        for number, node in after.items()
        if number not in before and node.parent in before
    ]
    # A clock that stands still, or goes back, leaves the time of a directory as it was.
    changed = {parent for one in differences for parent in (one.parent, one.new_parent)}
    differences += [
        _difference(DiffKind.MODIFY, was)
        for number, was in before.items()
        if number in after and (was.inode != after[number].inode or number in changed)
    ]
    return sorted(differences, key=lambda difference: (difference.path, difference.kind is DiffKind.CREATE))


def _difference(kind: DiffKind, node: _Node, target: _Node | None = None) -> Difference:
    moved_to, new_parent = (None, 0) if target is None else (target.path, target.parent)
    inode = node.inode
    return Difference(
        kind, node.path, moved_to, inode.inode, node.parent, new_parent, inode.kind is InodeKind.DIRECTORY
    )


def _is_moved(was: _Node, node: _Node) -> bool:
    """Return whether its own entry changed; what merely lies in something that was moved is not named."""
    return was.parent != node.parent or was.path.rpartition("/")[2] != node.path.rpartition("/")[2]


def _read_tree(reader: Reader, directory: InodeId) -> Generator[None, None, _Tree]:
    top = reader.inode(directory)
    assert top is not None, "what has snapshots is not deleted"
    tree = {directory: _Node(directory, "", top)}
    unread = [(directory, "")]
    while unread:
        parent, after = unread.pop()
        with reader.view():
            children = reader.children(parent, after, list_page_entries)
        if len(children) == list_page_entries:
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
