"""From paths to inodes: how far a path leads, and HDFS's messages for why it leads no further.

A path that was given to a run leads to the same inodes as without the run. In a transaction it does so only while
the run is the latest of its root.
"""

from __future__ import annotations

import time

import msgspec

from peacefs.coordinator.limits import directory_entries_max
from peacefs.coordinator.metadata.model import Inode, InodeId, InodeKind, RecordedRun
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.protocol.errors import (
    DirectoryFull,
    FileNotFound,
    ParentNotDirectory,
    PathThroughFile,
    PeacefsError,
    RunSuperseded,
)
from peacefs.protocol.ids import show

from .paths import NamespacePath


class ResolvedPath(msgspec.Struct, frozen=True):
    """The inodes that a path leads through, the root's first, as far as its names exist."""

    path: NamespacePath
    inodes: list[InodeId]
    #: The last of the existing inodes.
    deepest: Inode
    #: Whether the path itself exists.
    is_whole: bool

    @property
    def last(self) -> InodeId:
        return self.inodes[-1]

    @property
    def missing(self) -> tuple[str, ...]:
        """The names that do not exist."""
        return self.path.components[len(self.inodes) - 1 :]

    @property
    def parent(self) -> InodeId:
        """The directory that holds the path, of which only the last name may be missing. Not for the root."""
        return self.inodes[len(self.path.components) - 1]


def follow(reader: Reader, path: NamespacePath) -> ResolvedPath:
    """Follow a path as far as it exists. Files have no children, so a path through a file ends there.

    Raises RunSuperseded in a transaction.
    """
    inodes, deepest = reader.follow(path.components)
    if path.writer is not None and isinstance(reader, Transaction):
        _refuse_superseded(reader, path, inodes)
    return ResolvedPath(path, inodes, deepest, len(inodes) > len(path.components))


def check_writer(reader: Reader, path: NamespacePath) -> None:
    """Check the run of a path before beginning something that a later transaction ends. Raises RunSuperseded."""
    if path.writer is not None:
        _refuse_superseded(reader, path, follow(reader, path).inodes)


def _refuse_superseded(reader: Reader, path: NamespacePath, inodes: list[InodeId]) -> None:
    assert path.writer is not None
    depth, number = path.writer
    root = NamespacePath(path.components[:depth])
    if len(inodes) <= depth:
        raise RunSuperseded(
            f"run {show(number)} of {root} may write no more: {root} was deleted or renamed. Nothing was changed"
        )
    latest = reader.run(inodes[depth])
    if latest is None:
        raise RunSuperseded(
            f"run {show(number)} of {root} may write no more: another directory is there now, put in its place "
            "by a rename or a rollback. Nothing was changed; begin a new run to go on from it"
        )
    if latest.number != number:
        raise RunSuperseded(
            f"run {show(number)} of {root} may write no more: run {show(latest.number)} has taken over "
            f"({described(latest)}). Nothing was changed; this query should stop"
        )


def described(run: RecordedRun) -> str:
    """Describe the owner of a run for people."""
    process = f"process {run.pid} on {run.host}" if run.pid else run.host
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(run.since_ms / 1000))
    return f"{run.user}, {process}, since {since} UTC"


def existing_inode(reader: Reader, inode: InodeId) -> Inode:
    """Return the inode of an entry. Nothing may be awaited after the entry was read."""
    found = reader.inode(inode)
    assert found is not None, f"an entry names inode {inode}, which does not exist"
    return found


def find(reader: Reader, path: NamespacePath) -> ResolvedPath:
    """Follow a path for an operation on an existing name. Raises PathThroughFile, as HDFS does."""
    way = follow(reader, path)
    _refuse_file_on_the_way(way, PathThroughFile)
    return way


def find_existing(reader: Reader, path: NamespacePath) -> Inode:
    """Return the inode at a path. Raises FileNotFound; PathThroughFile for a path through a file."""
    way = find(reader, path)
    if not way.is_whole:
        raise FileNotFound(f"File does not exist: {path}")
    return way.deepest


def find_place(reader: Reader, path: NamespacePath) -> ResolvedPath:
    """Follow a path at which something is to be made. Raises ParentNotDirectory for a path through a file."""
    way = follow(reader, path)
    _refuse_file_on_the_way(way, ParentNotDirectory)
    return way


def check_not_full(tx: Transaction, directory: InodeId) -> None:
    """Raise DirectoryFull, with HDFS's message, if a directory can take no more entries."""
    count = tx.entry_count(directory)
    if count >= directory_entries_max:
        path = NamespacePath(tuple(name for _, name in tx.ancestors(directory)))
        raise DirectoryFull(
            f"The directory item limit of {path} is exceeded: limit={directory_entries_max} items={count}"
        )


def _refuse_file_on_the_way(way: ResolvedPath, error: type[PeacefsError]) -> None:
    if not way.is_whole and way.deepest.kind is InodeKind.FILE:
        raise error(f"{way.path.ancestor(len(way.inodes) - 1)} (is not a directory)")
