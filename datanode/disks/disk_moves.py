"""Moves a replica to another disk of its datanode: copies, verifies and seals it, then deletes the original.

Exactly one of the two replicas is visible at any time (`disk_set`), so the coordinator need not be told. If the
process is killed in between, both exist, and the next start deletes one of them. A write or deletion of the chunk
meanwhile cancels the move.
"""

from __future__ import annotations

from collections.abc import Callable

from peacefs.datanode.limits import disk_balance_look_s
from peacefs.datanode.rate_limiter import CopyBudget
from peacefs.datanode.store.chunk_store import ReadPlan, Staged
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.messages import Replica
from peacefs.runtime import effects as fx

from .disk import Disk
from .disk_set import DiskSet


class DiskMoves:
    """Moves replicas within one datanode, one at a time, for `DiskBalancer`. `is_wanted` is checked regularly."""

    def __init__(self, disks: DiskSet, is_wanted: Callable[[], bool]) -> None:
        self._disks = disks
        self._is_wanted = is_wanted

    def move(self, replica: Replica, source: Disk, target: Disk, budget: CopyBudget) -> fx.Steps[bool]:
        """Move a replica; return whether it was moved. Raises ChecksumMismatch, DiskFull, DiskFault."""
        if not self._disks.begin_move(replica, source, target):
            return False
        try:
            if not (yield from self._copy(replica, source, target, budget)):
                return False
            counts = self._disks.change_over(replica, source, target)
            while counts is None:
                yield from fx.sleep(disk_balance_look_s / 10)
                counts = self._disks.change_over(replica, source, target)
            doomed = source if counts else target
            yield from self._disks.watched(doomed, doomed.store.delete(replica.chunk, replica.version))
            return counts
        finally:
            self._disks.end_move(replica.chunk)

    def _copy(self, replica: Replica, source: Disk, target: Disk, budget: CopyBudget) -> fx.Steps[bool]:
        """Copy the replica; if it is no longer wanted, remove the copy and return False."""
        staged = target.store.stage(replica.chunk, replica.version)
        try:
            if not (yield from self._fill(staged, replica, source, target, budget)):
                yield from target.store.discard(staged)
                return False
        except PeacefsError:
            yield from target.store.discard(staged)
            raise
        yield from self._disks.watched(target, target.store.seal(staged))
        return True

    def _fill(
        self, staged: Staged, replica: Replica, source: Disk, target: Disk, budget: CopyBudget
    ) -> fx.Steps[bool]:
        reading = source.store.open_read(replica.chunk, replica.version, 0, replica.length)
        plan = yield from self._disks.watched(source, reading)
        try:
            is_filled = yield from self._pour(plan, staged, source, target, budget)
        except PeacefsError:
            yield from source.store.close_read(plan)
            raise
        yield from source.store.close_read(plan)
        return is_filled and plan.version == replica.version

    def _pour(
        self, plan: ReadPlan, staged: Staged, source: Disk, target: Disk, budget: CopyBudget
    ) -> fx.Steps[bool]:
        while (blocks := (yield from self._disks.watched(source, source.store.read_blocks(plan)))) is not None:
            if not (yield from self._wait_for(budget, len(blocks.data))):
                return False
            yield from self._disks.watched(target, target.store.write(staged, blocks.sums, blocks.data))
        return True

    def _wait_for(self, budget: CopyBudget, size: int) -> fx.Steps[bool]:
        """Wait until the budget allows `size` bytes. Return False if the move is no longer wanted."""
        now_s = yield from fx.now()
        start_s = budget.reserve(now_s, size)
        while now_s < start_s and self._is_wanted():
            yield from fx.sleep(min(start_s - now_s, disk_balance_look_s))
            now_s = yield from fx.now()
        return self._is_wanted()
