"""The replicas of one datanode on several disks, each with a `ChunkStore`. If a disk fails, the others continue.

A new chunk goes to a random disk, with a probability in proportion to its free bytes. All writes of a chunk go to
the disk that already has it, so that one store sees all its versions and refuses older ones. If that disk is full,
the pipeline uses another datanode. While a replica is moved to another disk (`disk_moves`), exactly one of the two
replicas counts at any time, and the other is hidden.

An error may concern one replica only. But if the disk's probe then fails too, the disk has failed until the next
start: its replicas count as lost at once, and it is not accessed. A disk that is merely read-only is not written
to until a later probe succeeds.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar

from peacefs.datanode import metrics
from peacefs.datanode.store.chunk_store import Blocks, ChunkStore, ReadPlan, Sealed, Staged, WantedRange
from peacefs.datanode.store.recovery_report import StoreRecovery
from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import ChunkError, ChunkNotFound, DiskFault
from peacefs.protocol.ids import ChunkId, Version, show
from peacefs.protocol.limits import packet_bytes
from peacefs.protocol.messages import DiskReport, Replica, Usage
from peacefs.runtime import effects as fx

from .disk import Disk, DiskState
from .disk_recovery import recover_disks

T = TypeVar("T")


class DiskSet:
    """A `ReplicaStore` over at least one disk. The gateway, pipeline, scrubber and orders of a datanode use it.

    `on_lost` receives each replica of a failed disk. `on_changed` receives a disk whose state changed, and its
    number of replicas. Both are called on the thread that found the change.
    """

    def __init__(
        self,
        disks: Sequence[Disk],
        *,
        rng: random.Random | None = None,
        on_lost: Callable[[Replica], None] = lambda replica: None,
        on_changed: Callable[[Disk, int], None] = lambda disk, replicas: None,
    ) -> None:
        self._disks = list(disks)
        self._rng = rng or random.SystemRandom()
        self._on_lost = on_lost
        self._on_changed = on_changed
        self._lock = threading.Lock()
        #: The number of writers of each chunk on each disk.
        self._writers: defaultdict[tuple[ChunkId, Disk], int] = defaultdict(int)
        self._staged: dict[Staged, Disk] = {}
        self._plans: dict[ReadPlan, Disk] = {}
        #: For each chunk that is being moved, the disk whose replica does not count.
        self._hidden: dict[ChunkId, Disk] = {}
        #: The number of listings of all replicas under way. No move is completed meanwhile.
        self._listings = 0

    @property
    def working(self) -> list[Disk]:
        """The disks that have not failed."""
        return [disk for disk in self._disks if disk.is_readable]

    @property
    def writable(self) -> list[Disk]:
        return [disk for disk in self._disks if disk.state is DiskState.WORKING]

    def reports(self) -> list[DiskReport]:
        return [disk.report() for disk in self._disks]

    def look_for_room(self) -> list[Disk]:
        """Return the disks that have become full, or have room again, since the last call."""
        return [disk for disk in self._disks if disk.look_for_room()]

    # -- start and end -----------------------------------------------------------------------------

    def recover(self) -> fx.Steps[StoreRecovery]:
        """Load the replicas on all disks. Run this once, before anything else.

        A disk that fails here is left out; a disk that cannot be written to is only read. Raises StartupError if
        no disk can be written to.
        """
        whole = yield from recover_disks(self._disks, self._on_changed)
        whole.replicas = len(self.replicas())
        return whole

    def close(self) -> fx.Steps[None]:
        """Close all disks. No method may be called afterwards."""
        for disk in self.working:
            yield from disk.store.close()

    # -- writing -----------------------------------------------------------------------------------

    def stage(self, chunk: ChunkId, version: Version) -> Staged:
        """See `ChunkStore`. Raises DiskFault if no disk can be written to."""
        return self._begin(chunk, lambda store: store.stage(chunk, version))

    def take(self, chunk: ChunkId, version: Version, sums: Bytes, data: Bytes) -> Staged:
        """See `ChunkStore`. Raises DiskFault if no disk can be written to."""
        return self._begin(chunk, lambda store: store.take(chunk, version, sums, data))

    def _begin(self, chunk: ChunkId, begin: Callable[[ChunkStore], Staged]) -> Staged:
        with self._lock:
            disk = self._disk_for(chunk)
            self._writers[chunk, disk] += 1
        try:
            staged = begin(disk.store)
        except ChunkError:
            self._writer_gone(chunk, disk)
            raise
        self._staged[staged] = disk
        return staged

    def write(self, staged: Staged, sums: Bytes, data: Bytes) -> fx.Steps[None]:
        disk = self._staged[staged]
        try:
            yield from self.watched(disk, disk.store.write(staged, sums, data))
        finally:
            self._forget_if_over(staged)

    def seal(self, staged: Staged, sums: Bytes = b"", data: Bytes = b"") -> fx.Steps[Sealed]:
        disk = self._staged[staged]
        try:
            sealed = yield from self.watched(disk, disk.store.seal(staged, sums, data))
        finally:
            self._forget_if_over(staged)
        self._refuse_failed(disk)
        return sealed

    def seal_many(self, chunks: Sequence[Staged]) -> fx.Steps[list[Sealed | ChunkError]]:
        """See `ChunkStore`. All chunks must be on the same disk: their `Staged.directory` must be equal."""
        disk = self._staged[chunks[0]]
        if not disk.is_readable:
            for staged in chunks:
                yield from self.discard(staged)
            return [self._failed(disk) for _ in chunks]
        outcomes = yield from disk.store.seal_many(chunks)
        for staged in chunks:
            self._forget_if_over(staged)
        if any(isinstance(outcome, DiskFault) for outcome in outcomes):
            metrics.disk_faults.labels(disk.directory).inc()
            yield from self._examine(disk)
        # Do not acknowledge chunks on a disk that has failed meanwhile.
        return list(outcomes) if disk.is_readable else [self._failed(disk) for _ in chunks]

    def read_staged(self, staged: Staged, offset: int, length: int) -> fx.Steps[bytes]:
        disk = self._staged[staged]
        try:
            return (yield from self.watched(disk, disk.store.read_staged(staged, offset, length)))
        finally:
            self._forget_if_over(staged)

    def discard(self, staged: Staged) -> fx.Steps[None]:
        disk = self._staged.get(staged)
        if disk is not None:
            yield from disk.store.discard(staged)
            self._forget_if_over(staged)

    def _disk_for(self, chunk: ChunkId) -> Disk:
        for disk in self.working:
            if (chunk, disk) in self._writers or self._counts(chunk, disk):
                self._refuse_unless_writable(disk)
                return disk
        disks = self.writable
        if not disks:
            raise DiskFault("no disk of this datanode can be written to")
        if len(disks) == 1:
            return disks[0]
        room = [disk.store.usage().available_bytes for disk in disks]
        return self._rng.choices(disks, room)[0] if any(room) else disks[0]

    def _forget_if_over(self, staged: Staged) -> None:
        if staged.is_over:
            disk = self._staged.pop(staged, None)
            if disk is not None:
                self._writer_gone(staged.chunk, disk)

    def _writer_gone(self, chunk: ChunkId, disk: Disk) -> None:
        with self._lock:
            self._writers[chunk, disk] -= 1
            if not self._writers[chunk, disk]:
                del self._writers[chunk, disk]

    # -- reading -----------------------------------------------------------------------------------

    def open_read(self, chunk: ChunkId, version: Version, offset: int, length: int) -> fx.Steps[ReadPlan]:
        disk = self._holder(chunk)
        if disk is None:
            raise ChunkNotFound(f"chunk {show(chunk)} is not here")
        try:
            plan = yield from self.watched(disk, disk.store.open_read(chunk, version, offset, length))
        except ChunkNotFound:
            # The replica was here a moment ago. It was moved, or its file vanished, maybe with the disk.
            before, disk = disk, self._holder(chunk)
            if disk is None or disk is before:
                yield from self._examine(before)
                raise
            plan = yield from self.watched(disk, disk.store.open_read(chunk, version, offset, length))
        if plan.at < plan.end:
            self._plans[plan] = disk
        return plan

    def read_small(self, wanted: Sequence[WantedRange]) -> fx.Steps[list[Blocks | None]]:
        """See `ChunkStore`."""
        found: list[Blocks | None] = [None] * len(wanted)
        by_disk: dict[Disk, list[int]] = {}
        for number, each in enumerate(wanted):
            if (disk := self._holder(each.chunk)) is not None:
                by_disk.setdefault(disk, []).append(number)
        for disk, numbers in by_disk.items():
            read = yield from disk.store.read_small([wanted[number] for number in numbers])
            for number, blocks in zip(numbers, read, strict=True):
                found[number] = blocks
        return found

    def read_blocks(self, plan: ReadPlan, bytes_max: int = packet_bytes) -> fx.Steps[Blocks | None]:
        return self._next(plan, lambda disk: disk.store.read_blocks(plan, bytes_max))

    def send_blocks(self, plan: ReadPlan, reader: fx.Connection, *, timeout_s: float) -> fx.Steps[int | None]:
        return self._next(plan, lambda disk: disk.store.send_blocks(plan, reader, timeout_s=timeout_s))

    def _next(self, plan: ReadPlan, steps_on: Callable[[Disk], fx.Steps[T | None]]) -> fx.Steps[T | None]:
        disk = self._plans.get(plan)
        if disk is None:
            return None
        try:
            result = yield from self.watched(disk, steps_on(disk))
        except ChunkError:
            self._plans.pop(plan, None)
            raise
        if plan.at == plan.end:
            self._plans.pop(plan, None)
        return result

    def drop_cached(self, plan: ReadPlan) -> fx.Steps[None]:
        disk = self._plans.get(plan)
        if disk is not None:
            yield from disk.store.drop_cached(plan)

    def close_read(self, plan: ReadPlan) -> fx.Steps[None]:
        disk = self._plans.pop(plan, None)
        if disk is not None:
            yield from disk.store.close_read(plan)

    # -- the rest ----------------------------------------------------------------------------------

    def delete(self, chunk: ChunkId, version: Version) -> fx.Steps[bool]:
        # A replica that is being moved is deleted from both disks.
        was_there = False
        for disk in self.working:
            if disk.store.find(chunk) is not None:
                was_there |= yield from self._delete(disk, chunk, version)
        return was_there

    def _delete(self, disk: Disk, chunk: ChunkId, version: Version) -> fx.Steps[bool]:
        try:
            return (yield from self.watched(disk, disk.store.delete(chunk, version)))
        except DiskFault:
            # The store has forgotten the replica. On a read-only disk it reappears at the next start: harmless.
            if disk.state is DiskState.READ_ONLY and disk.store.find(chunk) is None:
                return True
            raise

    def compact(self) -> fx.Steps[None]:
        """Run one round of compaction on every disk. Raises the last error after all disks were tried."""
        fault: ChunkError | None = None
        for disk in self.working:
            if disk.state is DiskState.READ_ONLY:
                yield from self._examine(disk)
                continue
            try:
                yield from self.watched(disk, disk.store.compact())
            except ChunkError as error:
                fault = error
        if fault is not None:
            raise fault

    def find(self, chunk: ChunkId) -> Replica | None:
        with self._lock:
            for disk in self.working:
                if self._hidden.get(chunk) is not disk and (replica := disk.store.find(chunk)) is not None:
                    return replica
        return None

    def replicas(self) -> list[Replica]:
        with self._lock:
            self._listings += 1
        try:
            return [
                replica
                for disk in self.working
                for replica in disk.store.replicas()
                if self._hidden.get(replica.chunk) is not disk
            ]
        finally:
            with self._lock:
                self._listings -= 1

    def chunks_after(self, chunk: ChunkId, limit: int) -> list[ChunkId]:
        """Return the next chunks above `chunk`, in order, from all disks."""
        parts = [disk.store.chunks_after(chunk, limit) for disk in self.working]
        return sorted(set(itertools.chain.from_iterable(parts)))[:limit]

    def usage(self) -> Usage:
        """Return the usage of all disks that have not failed. Only writable disks have room."""
        usages = [disk.usage() for disk in self.working]
        return Usage(
            sum(usage.capacity_bytes for usage in usages),
            sum(usage.used_bytes for usage in usages),
            sum(usage.available_bytes for usage in usages),
            live_bytes=sum(usage.live_bytes for usage in usages),
        )

    def _holder(self, chunk: ChunkId) -> Disk | None:
        with self._lock:
            return next((disk for disk in self.working if self._counts(chunk, disk)), None)

    def _counts(self, chunk: ChunkId, disk: Disk) -> bool:
        """Return whether this disk has the visible replica of a chunk."""
        return self._hidden.get(chunk) is not disk and disk.store.find(chunk) is not None

    # -- moves from one disk to another --------------------------------------------------------------

    def begin_move(self, replica: Replica, source: Disk, target: Disk) -> bool:
        """Hide the future replica on `target`. Return False if the replica cannot be moved now."""
        with self._lock:
            if not self._lies_still(replica, source, target) or target.store.find(replica.chunk) is not None:
                return False
            self._hidden[replica.chunk] = target
            return True

    def change_over(self, replica: Replica, source: Disk, target: Disk) -> bool | None:
        """Make the copy visible and hide the original.

        Return False, without a change, if the original has changed or is being written; None to try again later.
        """
        with self._lock:
            if self._listings:
                return None
            if not self._lies_still(replica, source, target) or target.store.find(replica.chunk) != replica:
                return False
            self._hidden[replica.chunk] = source
            return True

    def end_move(self, chunk: ChunkId) -> None:
        """End the move: hide nothing any longer."""
        with self._lock:
            del self._hidden[chunk]

    def _lies_still(self, replica: Replica, source: Disk, target: Disk) -> bool:
        chunk = replica.chunk
        return (
            source.state is target.state is DiskState.WORKING
            and source.store.find(chunk) == replica
            and not any((chunk, disk) in self._writers for disk in self._disks)
        )

    # -- failing disks ------------------------------------------------------------------------------

    def watched(self, disk: Disk, steps: fx.Steps[T]) -> fx.Steps[T]:
        """Run `steps` on a disk. If they raise DiskFault, examine the disk."""
        self._refuse_failed(disk)
        try:
            return (yield from steps)
        except DiskFault:
            metrics.disk_faults.labels(disk.directory).inc()
            yield from self._examine(disk)
            raise

    def _refuse_failed(self, disk: Disk) -> None:
        if not disk.is_readable:
            raise self._failed(disk)

    def _failed(self, disk: Disk) -> DiskFault:
        return DiskFault(f"the disk of {disk.directory} has failed: {disk.fault}")

    def _refuse_unless_writable(self, disk: Disk) -> None:
        if disk.state is not DiskState.WORKING:
            raise DiskFault(f"the disk of {disk.directory} cannot be written to: {disk.fault}")

    def _examine(self, disk: Disk) -> fx.Steps[None]:
        if disk.is_readable:
            state, why = yield from disk.examine()
            self._change(disk, state, why)

    def _change(self, disk: Disk, state: DiskState, why: str | None) -> None:
        with self._lock:
            if state is disk.state or not disk.is_readable:
                return
            disk.state, disk.fault = state, why
            hidden = {chunk for chunk, where in self._hidden.items() if where is disk}
        held = [replica for replica in disk.store.replicas() if replica.chunk not in hidden]
        if state is DiskState.FAILED:
            for replica in held:
                self._on_lost(replica)
        self._on_changed(disk, len(held))
