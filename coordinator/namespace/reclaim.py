"""Reclaiming files and directories that have lost their names.

A file goes at once. A tree goes into a queue, as one row, and is taken apart later in small steps, so that
deleting it is one short commit and none that follows is long. Nobody can see it any more: its top has no name.
"""

from __future__ import annotations

from typing import Final

from peacefs.coordinator.limits import reclaim_entries_per_commit
from peacefs.coordinator.metadata.model import ChunkRecord, Discarded, Inode, InodeKind
from peacefs.coordinator.metadata.transaction import Transaction

# Answers are kept for whoever repeats a request: longer than a write token lives; when there are more than the
# number, for the shorter time, which is several times what any client goes on asking.
request_memory_s: Final = 86_400.0
requests_remembered_max: Final = 1_000_000
request_memory_crowded_s: Final = 600.0
requests_forgotten_per_commit: Final = 1000


def discard(tx: Transaction, inode: Inode) -> list[ChunkRecord]:
    """Reclaims a file or an empty directory now, all else later. The chunks that were freed now."""
    if inode.kind is InodeKind.DIRECTORY:
        if tx.has_children(inode.inode):
            tx.discard(inode.inode)
        else:
            tx.remove_inode(inode.inode)
        return []
    # The writer is fenced off even while a part of a long file waits to be reclaimed.
    tx.drop_lease(inode.inode)
    _, freed = _reclaim_file(tx, inode, reclaim_entries_per_commit, None)
    return freed


def reclaim_step(tx: Transaction, limit: int) -> tuple[list[ChunkRecord], bool]:
    """Reclaims about `limit` entries and chunks; when all are, what was kept for snapshots that are gone.

    What was freed, and whether there is more to do.
    """
    freed: list[ChunkRecord] = []
    left = limit
    while left > 0:
        discarded = tx.next_discarded()
        if discarded is None:
            purged, more = tx.purge_retired(left)
            return freed + purged, more
        left -= _reclaim_part(tx, discarded, left, freed)
    return freed, True


def forget_answers_step(tx: Transaction, now_ms: int) -> bool:
    """Drops answers that nobody will ask for any more. Whether there may be more to drop.

    Those older than `request_memory_s`; of more than `requests_remembered_max` the oldest, if they
    are older than `request_memory_crowded_s`.
    """
    limit = requests_forgotten_per_commit
    dropped = tx.forget_answers(now_ms - int(request_memory_s * 1000), limit)
    if dropped < limit:
        crowded_ms = now_ms - int(request_memory_crowded_s * 1000)
        dropped += tx.forget_answers(crowded_ms, limit - dropped, keep=requests_remembered_max)
    return dropped == limit


def _reclaim_part(tx: Transaction, discarded: Discarded, limit: int, freed: list[ChunkRecord]) -> int:
    """Takes the first of the queue apart, at least a little. How much work that was."""
    inode = tx.inode(discarded.inode)
    assert inode is not None, f"inode {discarded.inode} is queued and does not exist"
    tx.undiscard(inode.inode)
    if inode.kind is InodeKind.FILE:
        work, of_file = _reclaim_file(tx, inode, limit, discarded.at_tx)
        freed += of_file
        return work
    work = 1
    for name, child in tx.children(inode.inode, "", limit):
        tx.remove_entry(inode.inode, name, discarded.at_tx)
        if child.kind is InodeKind.DIRECTORY:
            tx.discard(child.inode, discarded.at_tx)
            work += 1
        else:
            done, of_file = _reclaim_file(tx, child, limit, discarded.at_tx)
            freed += of_file
            work += done
        if work > limit:
            break
    if tx.has_children(inode.inode):
        tx.discard(inode.inode, discarded.at_tx)
    else:
        tx.remove_inode(inode.inode, discarded.at_tx)
    return work


def _reclaim_file(tx: Transaction, inode: Inode, limit: int, at_tx: int | None) -> tuple[int, list[ChunkRecord]]:
    """Drops up to `limit` chunks of a file, and the file with the last; queues what is left of it.

    How much work that was, and the chunks that were freed.
    """
    dropped, freed = tx.drop_references(inode.inode, limit, at_tx)
    if dropped < limit:
        tx.remove_inode(inode.inode, at_tx)
    else:
        tx.discard(inode.inode, at_tx)
    return dropped + 1, freed
