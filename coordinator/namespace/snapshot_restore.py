"""Restore a directory to a snapshot: names are copied, data never.

The copy grows in small steps below a directory without a name. When it is complete, it replaces the contents of
the directory in one commit. The old contents are reclaimed like any deleted tree.
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
    """The progress of copying a snapshot."""

    path: NamespacePath
    snapshot: str
    at_tx: int
    top: InodeId
    growth: Growth


def begin(tx: Transaction, path: NamespacePath, snapshot: str) -> Restoration:
    """Begin a restore. Raises SnapshotRefused, FileNotFound."""
    directory, found = existing_snapshot(tx, path, snapshot)
    shown = tx.at(found.at_tx, directory).inode(directory)
    assert shown is not None, f"snapshot {snapshot} shows no directory"
    top = tx.add_inode(structs.replace(shown, inode=0, attributes_tx=0))
    tx.stage(top)
    return Restoration(path, snapshot, found.at_tx, top, begun(path, directory, top))


def copy_step(tx: Transaction, restoration: Restoration, limit: int) -> Restoration:
    """Copy about `limit` further names and references. Raises SnapshotRefused if the snapshot is gone."""
    directory = _directory(tx, restoration)
    past = tx.at(restoration.at_tx, directory)
    return replace(restoration, growth=grow(tx, past, restoration.growth, limit, _as_it_was))


def finish(tx: Transaction, restoration: Restoration, now_ms: int) -> list[ChunkRecord]:
    """Replace the directory's contents by the complete copy. Raises SnapshotRefused.

    Return the chunks that need more replicas than before.
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
    """Charge the change of usage. The directory itself counts before and after."""
    above = [*directories_above(tx, directory), directory]
    before = tree_usage(tx, above, existing_inode(tx, directory))
    copied = restoration.growth.copied
    charge(
        tx,
        (above, less(before)),
        (above, NamespaceUsage(copied.directories + copied.files, copied.space_consumed)),
    )


def give_up(tx: Transaction, restoration: Restoration) -> None:
    """Leave the directory as it is, and reclaim the copy. Do nothing if the copy is in place."""
    if tx.unstage(restoration.top):
        tx.discard(restoration.top)


def _as_it_was(_directory: NamespacePath, _name: str, inode: Inode) -> Inode:
    return inode


def _directory(tx: Transaction, restoration: Restoration) -> InodeId:
    directory, snapshot = existing_snapshot(tx, restoration.path, restoration.snapshot)
    if snapshot.at_tx != restoration.at_tx:
        raise SnapshotRefused(f"Snapshot {restoration.snapshot} of {restoration.path} has been replaced meanwhile")
    return directory
