"""Snapshots of directories: allow, take, rename, read and delete them, with HDFS's outcomes.

A snapshot costs one row, whatever the size of the directory. It is visible, read-only, at
`<directory>/.snapshot/<name>`. A directory that has snapshots, and directories above it, can be neither deleted
nor renamed.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from msgspec import structs

from peacefs.coordinator.limits import snapshots_per_directory_max
from peacefs.coordinator.metadata.model import (
    ROOT,
    Inode,
    InodeId,
    InodeKind,
    InodeStatus,
    ListPage,
    Snapshot,
    status_as,
)
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.protocol.errors import (
    BadRequest,
    FileNotFound,
    ParentNotDirectory,
    SnapshotIsReadOnly,
    SnapshotRefused,
)

from .paths import SNAPSHOTS_NAME, NamespacePath, check_name_length, parse_path
from .resolution import find_existing


class SnapshotPlace(NamedTuple):
    """The state in which a path is looked up: the present, or a snapshot, whose paths begin at its directory."""

    reader: Reader
    path: NamespacePath
    snapshot: Snapshot | None = None


class SnapshottableDirectory(NamedTuple):
    """A directory that allows snapshots, the path of its parent, and its number of snapshots."""

    status: InodeStatus
    parent: str
    snapshots: int


class ListedSnapshot(NamedTuple):
    """A snapshot, listed as the directory that it shows, and its transaction."""

    status: InodeStatus
    at_tx: int


# -- reading -----------------------------------------------------------------------------------------


def changeable_path(text: str) -> NamespacePath:
    """Parse a path that is to be changed. Raises SnapshotIsReadOnly for a path in a snapshot."""
    path = parse_path(text)
    if SNAPSHOTS_NAME in path.components:
        raise SnapshotIsReadOnly("Modification on a read-only snapshot is disallowed")
    return path


def snapshotted_directory(path: NamespacePath) -> NamespacePath | None:
    """Return the directory whose `.snapshot` a path leads through; None if there is none."""
    if SNAPSHOTS_NAME not in path.components:
        return None
    return path.ancestor(path.components.index(SNAPSHOTS_NAME))


def locate(reader: Reader, path: NamespacePath) -> SnapshotPlace:
    """Return the state in which to look a path up. Raises FileNotFound for a snapshot that does not exist."""
    directory = snapshotted_directory(path)
    if directory is None:
        return SnapshotPlace(reader, path)
    depth = len(directory.components) + 1
    if len(path.components) == depth:
        raise FileNotFound(f"File does not exist: {path}")
    name, below = path.components[depth], path.components[depth + 1 :]
    inode = find_existing(reader, directory)
    snapshot = reader.snapshot(inode.inode, name)
    if snapshot is None:
        raise FileNotFound(f"File does not exist: {path}")
    above = str(path.ancestor(depth + 1))
    return SnapshotPlace(reader.at(snapshot.at_tx, inode.inode), NamespacePath(below, above), snapshot)


def is_list_of_snapshots(path: NamespacePath) -> bool:
    """Return whether a path is the `.snapshot` of a directory."""
    return path.name == SNAPSHOTS_NAME and path.components.index(SNAPSHOTS_NAME) == len(path.components) - 1


def list_page(reader: Reader, path: NamespacePath, start_after: str | None, limit: int) -> ListPage:
    """List `.snapshot`: each snapshot as the directory that it shows. Raises FileNotFound."""
    directory = _directory_of_list(reader, path).inode
    found = [snapshot for snapshot in reader.snapshots(directory) if snapshot.name > (start_after or "")]
    return ListPage(
        [_status(reader, directory, snapshot) for snapshot in found[:limit]], max(0, len(found) - limit)
    )


def status_of_list(reader: Reader, path: NamespacePath) -> InodeStatus:
    """Return the status of `.snapshot` itself, a directory. Raises FileNotFound."""
    return status_as("", _directory_of_list(reader, path))


def _directory_of_list(reader: Reader, path: NamespacePath) -> Inode:
    directory = find_existing(reader, path.ancestor(len(path.components) - 1))
    if not reader.allows_snapshots(directory.inode):
        raise FileNotFound(f"File does not exist: {path}")
    return directory


def _status(reader: Reader, directory: InodeId, snapshot: Snapshot) -> InodeStatus:
    shown = reader.at(snapshot.at_tx, directory).inode(directory)
    assert shown is not None, f"snapshot {snapshot.name} shows no directory"
    return status_as(snapshot.name, structs.replace(shown, modified_ms=snapshot.created_ms))


def snapshottable_directories(reader: Reader) -> list[SnapshottableDirectory]:
    """Return all directories that allow snapshots and have a name, in order of their paths."""
    found = []
    for directory in reader.snapshot_directories():
        inode = reader.inode(directory)
        if inode is not None and reader.is_in_tree(directory):
            path = _path_of(reader, directory)
            parent = "" if path.is_root else str(path.ancestor(len(path.components) - 1))
            status = status_as(path.name, inode)
            found.append((path, SnapshottableDirectory(status, parent, len(reader.snapshots(directory)))))
    return [listed for _, listed in sorted(found, key=lambda one: one[0].components)]


def list_snapshots(reader: Reader, path: NamespacePath) -> list[ListedSnapshot]:
    """Return the snapshots of a directory in order of their names. Raises SnapshotRefused, FileNotFound."""
    directory = snapshottable(reader, path)
    return [ListedSnapshot(_status(reader, directory, one), one.at_tx) for one in reader.snapshots(directory)]


def existing_snapshot(reader: Reader, path: NamespacePath, name: str) -> tuple[InodeId, Snapshot]:
    """Return a directory and its snapshot. Raises SnapshotRefused, FileNotFound."""
    directory = snapshottable(reader, path)
    snapshot = reader.snapshot(directory, name)
    if snapshot is None:
        raise SnapshotRefused(f"Cannot find the snapshot of directory {path} with name {name}")
    return directory, snapshot


# -- changing ----------------------------------------------------------------------------------------


def allow(tx: Transaction, path: NamespacePath) -> None:
    """Allow snapshots of a directory, if not done before. Directories that allow them may not nest, as in HDFS."""
    inode = find_existing(tx, path)
    if inode.kind is InodeKind.FILE:
        raise ParentNotDirectory(f"{path} (is not a directory)")
    above = {ROOT, *(parent for parent, _ in tx.ancestors(inode.inode))}
    for other in tx.snapshot_directories():
        below = {parent for parent, _ in tx.ancestors(other)}
        if other != inode.inode and (other in above or inode.inode in below):
            kind = "ancestor" if other in above else "subdirectory"
            raise SnapshotRefused(
                f"Nested snapshottable directories not allowed: path={path}, the {kind} {_path_of(tx, other)} is "
                "already a snapshottable directory."
            )
    tx.set_allows_snapshots(inode.inode, True)


def disallow(tx: Transaction, path: NamespacePath) -> None:
    """Disallow snapshots, if not done before. Raises SnapshotRefused while there are snapshots."""
    inode = find_existing(tx, path)
    if tx.snapshots(inode.inode):
        raise SnapshotRefused(
            f"The directory {path} has snapshot(s). Please redo the operation after removing all the snapshots."
        )
    tx.set_allows_snapshots(inode.inode, False)


def default_name(now_ms: int) -> str:
    """Return HDFS's default name of a snapshot, in UTC."""
    return time.strftime("s%Y%m%d-%H%M%S", time.gmtime(now_ms / 1000)) + f".{now_ms % 1000:03}"


def create(tx: Transaction, path: NamespacePath, name: str, now_ms: int) -> None:
    """Take a snapshot of the directory's present state. Raises SnapshotRefused, BadRequest, FileNotFound."""
    directory = snapshottable(tx, path)
    _check_name(name)
    snapshots = tx.snapshots(directory)
    if any(snapshot.name == name for snapshot in snapshots):
        raise SnapshotRefused(f'Failed to add snapshot: there is already a snapshot with the same name "{name}".')
    if len(snapshots) >= snapshots_per_directory_max:
        raise SnapshotRefused(
            f"Failed to add snapshot: directory {path} has {len(snapshots)} snapshots, and may have no more"
        )
    tx.add_snapshot(directory, name, now_ms)


def rename(tx: Transaction, path: NamespacePath, name: str, new_name: str) -> None:
    """Rename a snapshot. Raises SnapshotRefused, BadRequest, FileNotFound."""
    directory = snapshottable(tx, path)
    _check_name(new_name)
    if tx.snapshot(directory, name) is None:
        raise SnapshotRefused(f"The snapshot {name} does not exist for directory {path}")
    if name == new_name:
        return
    if tx.snapshot(directory, new_name) is not None:
        raise SnapshotRefused(f"The snapshot {new_name} already exists for directory {path}")
    tx.rename_snapshot(directory, name, new_name)


def delete(tx: Transaction, path: NamespacePath, name: str) -> None:
    """Delete a snapshot; `reclaim` deletes later what only it holds. Raises SnapshotRefused, FileNotFound."""
    directory = snapshottable(tx, path)
    if tx.snapshot(directory, name) is None:
        raise SnapshotRefused(f"Cannot delete snapshot {name} from path {path}: the snapshot does not exist.")
    tx.remove_snapshot(directory, name)


def refuse_snapshotted(tx: Transaction, inode: InodeId, path: NamespacePath) -> None:
    """Raise SnapshotRefused if a directory that is to lose its place, or one below it, has snapshots."""
    found = tx.snapshotted_within(inode)
    if found is not None:
        raise SnapshotRefused(
            f"The directory {path} cannot be deleted since {_path_of(tx, found)} is snapshottable and already has "
            "snapshots"
        )


def snapshottable(reader: Reader, path: NamespacePath) -> InodeId:
    """Return a directory that allows snapshots. Raises SnapshotRefused, FileNotFound."""
    inode = find_existing(reader, path).inode
    if not reader.allows_snapshots(inode):
        raise SnapshotRefused(f"Directory is not a snapshottable directory: {path}")
    return inode


def _path_of(reader: Reader, inode: InodeId) -> NamespacePath:
    return NamespacePath(tuple(name for _, name in reader.ancestors(inode)))


def _check_name(name: str) -> None:
    """Check a snapshot's name. Raises BadRequest, PathLimitExceeded if it cannot be a component of a path."""
    if parse_path(f"/{name}").components != (name,) or ":" in name or name == SNAPSHOTS_NAME:
        raise BadRequest(f"{name!r} cannot be the name of a snapshot")
    check_name_length(name)
