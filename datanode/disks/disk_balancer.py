"""Evens out the use of the disks of one datanode as long as a client asks for it, like `hdfs diskbalancer`.

A run lasts as long as its client keeps renewing it. One run at a time. A restart of the datanode ends the run;
replicas already moved stay where they are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from peacefs.datanode.rate_limiter import CopyBudget
from peacefs.peace.balance_plan import BalancePhase, BalancePlan, Fill
from peacefs.protocol.errors import ChecksumMismatch, ChunkError, ChunkNotFound, StaleVersion
from peacefs.protocol.limits import balance_failures_max, balance_silence_s, packet_bytes
from peacefs.protocol.messages import BalanceDisks, DiskBalance, Replica
from peacefs.runtime import effects as fx

from .disk import Disk
from .disk_moves import DiskMoves
from .disk_set import DiskSet


@dataclass
class _BalanceRun:
    name: str
    plan: BalancePlan
    bytes_per_second: float
    renewed_s: float
    phase: BalancePhase = BalancePhase.RUNNING
    bytes_moved: int = 0
    moved: int = 0
    failed: int = 0
    failed_in_a_row: int = 0


class DiskBalancer:
    """The disk balancer of one datanode. Any thread may call `asked`; one background thread calls `advance`.

    `on_corrupt` receives each replica that could not be read, `on_fault` every other error of a move.
    """

    def __init__(
        self,
        disks: DiskSet,
        clock: Callable[[], float],
        on_corrupt: Callable[[Replica], None],
        on_fault: Callable[[Replica, ChunkError], None] = lambda replica, fault: None,
    ) -> None:
        self._disks = disks
        self._clock = clock
        self._on_corrupt = on_corrupt
        self._on_fault = on_fault
        self._moves = DiskMoves(disks, self._is_wanted)
        self._lock = threading.Lock()
        self._run: _BalanceRun | None = None
        self._stopped = False
        #: Totals of all runs since the start.
        self.moved_total = 0
        self.bytes_moved_total = 0

    def asked(self, wanted: BalanceDisks) -> DiskBalance:
        """Start, renew or cancel a run, unless another is under way; return the state of the current run."""
        now_s = self._clock()
        with self._lock:
            run = self._run
            if run is None or (
                run.phase is not BalancePhase.RUNNING and run.name != wanted.run and not wanted.cancel
            ):
                run = self._run = None if wanted.cancel else self._begin(wanted, now_s)
            if run is None:
                return DiskBalance("", "", 0, 0, 0, 0)
            if run.name == wanted.run and run.phase is BalancePhase.RUNNING:
                run.renewed_s = now_s
                if wanted.cancel:
                    run.phase = BalancePhase.CANCELLED
            left = run.plan.left_bytes()
            return DiskBalance(run.name, run.phase.value, run.bytes_moved, left, run.moved, run.failed)

    def _begin(self, wanted: BalanceDisks, now_s: float) -> _BalanceRun:
        usages = {disk.directory: disk.usage() for disk in self._disks.writable}
        fills = {name: Fill(usage.live_bytes, usage.capacity_bytes) for name, usage in usages.items()}
        return _BalanceRun(wanted.run, BalancePlan(fills, wanted.threshold), wanted.bytes_per_second, now_s)

    def stop(self) -> None:
        """Stop the current run, because the datanode stops."""
        self._stopped = True

    def _is_wanted(self) -> bool:
        run = self._run
        if run is None or self._stopped:
            return False
        if run.phase is BalancePhase.RUNNING and self._clock() - run.renewed_s > balance_silence_s:
            run.phase = BalancePhase.ABANDONED
        return run.phase is BalancePhase.RUNNING

    def advance(self) -> fx.Steps[None]:
        """Complete the current run, if there is one. Call this periodically."""
        run = self._run
        if run is None or not self._is_wanted():
            return
        budget = CopyBudget(run.bytes_per_second, packet_bytes)
        disks = {disk.directory: disk for disk in self._disks.writable}
        for name in run.plan.sources():
            if name in disks and self._is_wanted():
                yield from self._relieve(run, disks[name], disks, budget)
        with self._lock:
            if self._is_wanted():
                run.phase = BalancePhase.STUCK if run.plan.over() or run.plan.under() else BalancePhase.BALANCED

    def _relieve(
        self, run: _BalanceRun, source: Disk, disks: dict[str, Disk], budget: CopyBudget
    ) -> fx.Steps[None]:
        """Move replicas from an overfull disk, largest first, so that few moves are needed."""
        for replica in sorted(source.store.replicas(), key=lambda each: each.length, reverse=True):
            if not self._is_wanted() or run.plan.excess_bytes(source.directory) <= 0:
                return
            if not (run.plan.over() or run.plan.under()):
                return
            targets = run.plan.targets(source.directory, replica.length) if replica.length else []
            target = next((disks[name] for name in targets if name in disks), None)
            if target is not None:
                yield from self._move(run, replica, source, target, budget)

    def _move(
        self, run: _BalanceRun, replica: Replica, source: Disk, target: Disk, budget: CopyBudget
    ) -> fx.Steps[None]:
        try:
            moved = yield from self._moves.move(replica, source, target, budget)
        except (ChunkNotFound, StaleVersion):
            # The replica was deleted or replaced meanwhile.
            return
        except ChecksumMismatch:
            self._on_corrupt(replica)
            self._failed(run)
            return
        except ChunkError as fault:
            self._on_fault(replica, fault)
            self._failed(run)
            return
        if not moved:
            return
        with self._lock:
            run.plan.move(source.directory, target.directory, replica.length)
            run.moved += 1
            run.bytes_moved += replica.length
            run.failed_in_a_row = 0
            self.moved_total += 1
            self.bytes_moved_total += replica.length

    def _failed(self, run: _BalanceRun) -> None:
        with self._lock:
            run.failed += 1
            run.failed_in_a_row += 1
            if run.failed_in_a_row >= balance_failures_max and run.phase is BalancePhase.RUNNING:
                run.phase = BalancePhase.FAILING
