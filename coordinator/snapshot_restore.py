"""Restoring a directory to what a snapshot shows: names are copied, data never.

The copy grows in small steps below a directory without a name, which nobody sees. When it is whole it takes the
place of what the directory holds, in one commit; what was there goes the way of all that is deleted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from peacefs.protocol.errors import SnapshotRefused
from peacefs.protocol.limits import list_page_entries

from .metadata import InodeId, Transaction
from .paths import NamespacePath
from .records import Kind
from .snapshots import existing_snapshot, refuse_snapshotted


@dataclass(frozen=True, slots=True)
class Restoration:
    """How far a copy has come: `unread` are directories of the snapshot, their copies, and the last names."""

    path: NamespacePath
    snapshot: str
    at_tx: int
    top: InodeId
    unread: tuple[tuple[InodeId, InodeId, str], ...]

    @property
    def is_whole(self) -> bool:
        return not self.unread


def begin(tx: Transaction, path: NamespacePath, snapshot: str) -> Restoration:
    """Raises SnapshotRefused, FileNotFound."""
    directory, found = existing_snapshot(tx, path, snapshot)
    shown = tx.at(found.at_tx, directory).inode(directory)
    assert shown is not None, f"snapshot {snapshot} shows no directory"
    top = tx.add_inode(shown)
    tx.stage(top)
    return Restoration(path, snapshot, found.at_tx, top, ((directory, top, ""),))


def copy_step(tx: Transaction, restoration: Restoration, limit: int) -> Restoration:
    """Copies about `limit` names and references more. Raises SnapshotRefused when the snapshot is gone."""
    directory = _directory(tx, restoration)
    past = tx.at(restoration.at_tx, directory)
    unread = list(restoration.unread)
    work = 0
    while unread and work < limit:
        source, copy, after = unread.pop()
        children = past.children(source, after, limit - work)
        if len(children) == limit - work:
            unread.append((source, copy, children[-1][0]))
        for name, child in children:
            made = tx.add_inode(child)
            tx.add_entry(copy, name, made)
            work += 1
            if child.kind is Kind.DIRECTORY:
                unread.append((child.inode, made, ""))
                continue
            for position, chunk in enumerate(past.references(child.inode)):
                tx.add_reference(made, position, chunk.chunk, chunk.length)
                work += 1
        work += 1
    return replace(restoration, unread=tuple(unread))


def finish(tx: Transaction, restoration: Restoration, now_ms: int) -> None:
    """Puts the copy, which is whole, in place of what the directory holds. Raises SnapshotRefused."""
    assert restoration.is_whole
    directory = _directory(tx, restoration)
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


def give_up(tx: Transaction, restoration: Restoration) -> None:
    """Leaves the directory as it is, and the copy to be reclaimed."""
    tx.unstage(restoration.top)
    tx.discard(restoration.top)


def _directory(tx: Transaction, restoration: Restoration) -> InodeId:
    directory, snapshot = existing_snapshot(tx, restoration.path, restoration.snapshot)
    if snapshot.at_tx != restoration.at_tx:
        raise SnapshotRefused(f"Snapshot {restoration.snapshot} of {restoration.path} has been replaced meanwhile")
    return directory
