"""Reclaim files and directories that have lost their names.

A file is reclaimed at once. A tree is queued, as one row, and taken apart later in small steps, so that its
deletion and each step are short commits. Nobody can see a queued tree, because its top has no name.
"""

from __future__ import annotations

from typing import Final

from peacefs.coordinator.limits import reclaim_entries_per_commit
from peacefs.coordinator.metadata.model import ChunkRecord, Discarded, Inode, InodeKind
from peacefs.coordinator.metadata.transaction import Transaction

# Answers are kept for clients that repeat a request: for longer than a write token lives. If there are more than
# the maximum number, they are kept for the shorter time, several times as long as any client retries.
request_memory_s: Final = 86_400.0
requests_remembered_max: Final = 1_000_000
request_memory_crowded_s: Final = 600.0
requests_forgotten_per_commit: Final = 1000


def discard(tx: Transaction, inode: Inode) -> list[ChunkRecord]:
    """Reclaim a file or an empty directory now, and anything else later. Return the chunks that are free now."""
    if inode.kind is InodeKind.DIRECTORY:
        if tx.has_children(inode.inode):
            tx.discard(inode.inode)
        else:
            tx.remove_inode(inode.inode)
        return []
    # Fence the writer off, even while a part of a long file still waits to be reclaimed.
    tx.drop_lease(inode.inode)
    _, freed = _reclaim_file(tx, inode, reclaim_entries_per_commit, None)
    return freed


def reclaim_step(tx: Transaction, limit: int) -> tuple[list[ChunkRecord], bool]:
    """Reclaim about `limit` entries and chunks, then data that only deleted snapshots held.

    Return what was freed, and whether there is more to do.
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
    """Delete answers that nobody will ask for again. Return whether there may be more.

    These are answers older than `request_memory_s`. Of more than `requests_remembered_max`, also the oldest, if
    they are older than `request_memory_crowded_s`.
    """
    limit = requests_forgotten_per_commit
    dropped = tx.forget_answers(now_ms - int(request_memory_s * 1000), limit)
    if dropped < limit:
        crowded_ms = now_ms - int(request_memory_crowded_s * 1000)
        dropped += tx.forget_answers(crowded_ms, limit - dropped, keep=requests_remembered_max)
    return dropped == limit


def _reclaim_part(tx: Transaction, discarded: Discarded, limit: int, freed: list[ChunkRecord]) -> int:
    """Take at least a little of the queue's first tree apart. Return how much work that was."""
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
    """Delete up to `limit` chunks of a file, and the file with its last chunk; queue the rest.

    Return how much work that was, and the chunks that were freed.
    """
    dropped, freed = tx.drop_references(inode.inode, limit, at_tx)
    if dropped < limit:
        tx.remove_inode(inode.inode, at_tx)
    else:
        tx.discard(inode.inode, at_tx)
    return dropped + 1, freed
