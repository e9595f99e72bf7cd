"""Restoring a directory to what a snapshot shows: names are copied, data never.

The copy grows in small steps below a directory without a name, which nobody sees. When it is whole it takes the
place of what the directory holds, in one commit; what was there goes the way of all that is deleted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from msgspec import structs

from peacefs.coordinator.limits import list_page_entries
from peacefs.coordinator.metadata.model import ChunkRecord, Inode, InodeId, NamespaceUsage
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.protocol.errors import SnapshotRefused

from .copy_steps import Growth, begun, grow
from .paths import NamespacePath
from .quotas import charge, directories_above, less, tree_usage
from .resolution import existing_inode
from .snapshots import existing_snapshot, refuse_snapshotted


@dataclass(frozen=True, slots=True)
class Restoration:
    """The progress of a copy of what a snapshot shows."""

    path: NamespacePath
    snapshot: str
    at_tx: int
    top: InodeId
    growth: Growth


def begin(tx: Transaction, path: NamespacePath, snapshot: str) -> Restoration:
    """Raises SnapshotRefused, FileNotFound."""
    directory, found = existing_snapshot(tx, path, snapshot)
    shown = tx.at(found.at_tx, directory).inode(directory)
    assert shown is not None, f"snapshot {snapshot} shows no directory"
    top = tx.add_inode(structs.replace(shown, inode=0, attributes_tx=0))
    tx.stage(top)
    return Restoration(path, snapshot, found.at_tx, top, begun(path, directory, top))


def copy_step(tx: Transaction, restoration: Restoration, limit: int) -> Restoration:
    """Copies about `limit` names and references more. Raises SnapshotRefused when the snapshot is gone."""
    directory = _directory(tx, restoration)
    past = tx.at(restoration.at_tx, directory)
    return replace(restoration, growth=grow(tx, past, restoration.growth, limit, _as_it_was))


def finish(tx: Transaction, restoration: Restoration, now_ms: int) -> list[ChunkRecord]:
    """Puts the copy, which is whole, in place of what the directory holds. Raises SnapshotRefused.

    The chunks that are to have more replicas than before.
    """
    assert restoration.growth.is_whole
    directory = _directory(tx, restoration)
    _charge(tx, restoration, directory)
    while children := tx.children(directory, "", list_page_entries):
        for name, child in children:
            refuse_snapshotted(tx, child.inode, restoration.path.child(name))
            tx.remove_entry(directory, name)
            tx.discard(child.inode)
    while children := tx.children(restoration.top, "", list_page_entries):
        for name, child in children:
            tx.remove_entry(restoration.top, name)
            tx.add_entry(directory, name, child.inode)
    tx.unstage(restoration.top)
    tx.remove_inode(restoration.top)
    tx.touch(directory, now_ms)
    return restoration.growth.changed


def _charge(tx: Transaction, restoration: Restoration, directory: InodeId) -> None:
    """The directory itself counts before and after."""
    above = [*directories_above(tx, directory), directory]
    before = tree_usage(tx, above, existing_inode(tx, directory))
    copied = restoration.growth.copied
    charge(
        tx,
        (above, less(before)),
        (above, NamespaceUsage(copied.directories + copied.files, copied.space_consumed)),
    )


def give_up(tx: Transaction, restoration: Restoration) -> None:
    """Leaves the directory as it is, and the copy to be reclaimed. Does nothing once it is in place."""
    if tx.unstage(restoration.top):
        tx.discard(restoration.top)


def _as_it_was(_directory: NamespacePath, _name: str, inode: Inode) -> Inode:
    return inode


def _directory(tx: Transaction, restoration: Restoration) -> InodeId:
    directory, snapshot = existing_snapshot(tx, restoration.path, restoration.snapshot)
    if snapshot.at_tx != restoration.at_tx:
        raise SnapshotRefused(f"Snapshot {restoration.snapshot} of {restoration.path} has been replaced meanwhile")
    return directory
