"""The chunk store of one disk: sealed, checksummed, immutable replicas.

A chunk is staged, written block by block, and sealed. Only a sealed chunk exists; it is complete and fsynced. Each
large chunk has its own file, small ones share segment files. Every byte is verified before it is stored, and again
before it is used, here or by the reader that receives it. Versions fence writers: a version older than one that
the store has seen is refused.

All methods that do I/O are participants (see `effects`). Any number of threads may run them. They raise classes of
`ChunkError`, and never OSError.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from peacefs.datanode.limits import disk_timeout_s, segment_batch_records_max
from peacefs.protocol.checksums import Bytes, chunk_checksum, verify_blocks
from peacefs.protocol.errors import (
    BadRequest,
    ChecksumMismatch,
    ChunkError,
    ChunkNotFound,
    DiskFault,
    DiskFull,
    PeacefsError,
    StaleVersion,
    StartupError,
)
from peacefs.protocol.ids import ChunkId, Version, show
from peacefs.protocol.limits import MIB, checksum_block_bytes, packet_bytes, small_chunk_bytes_max
from peacefs.protocol.messages import Replica, Usage
from peacefs.runtime import effects as fx

from .chunk_index import ChunkIndex, IndexedPlace
from .compaction import Compaction, Compactor
from .disk_faults import named_fault
from .large_chunks import LargeChunks, StagedFile
from .layout import StorePaths, describe
from .recovery_report import StoreRecovery
from .replica_reader import Blocks, ReadPlan, ReplicaReader, WantedRange
from .segment_log import SegmentLog
from .segment_recovery import SegmentRecovery
from .segments import NewRecord, Segments

# Writeback of a large chunk starts each time this number of bytes was received.
writeback_bytes: Final = 8 * MIB
segment_bytes_max: Final = 64 * MIB
# Maximum number of tombstones that wait in memory for the next append.
tombstones_waiting_max: Final = 1000


__all__ = ["Blocks", "ChunkStore", "ReadPlan", "Sealed", "Staged", "StoreRecovery", "WantedRange"]

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Staged:
    """A chunk being written. One participant owns it until it is sealed or discarded."""

    chunk: ChunkId
    version: Version
    #: The directory of its store, which all chunks of one `seal_many` must share.
    directory: str
    length: int = 0
    sums: bytearray = field(default_factory=bytearray)
    #: The data while the chunk is small; empty once it has a file.
    buffered: Bytes = b""
    file: StagedFile | None = None
    #: The chunk's checksum, if `take` staged it.
    checksum: int = 0
    #: True if a higher version was staged since.
    is_fenced: bool = False
    is_over: bool = False


class Sealed(NamedTuple):
    """The replica now in the store; `checksum` is the CRC32C of the packed block checksums."""

    length: int
    checksum: int


class ChunkStore:
    """All replicas of one datanode on one disk. Thread-safe. `DiskSet` and the moves between disks call it.

    `available_bytes` returns the free bytes of the file system; below `reserved_bytes`, new chunks are refused.
    (By default, only errors of the disk show that it is full.) `rng` provides the salts of segments. `on_lost`
    receives each sealed replica found to be unreadable for good, on the thread that found it.
    """

    def __init__(
        self,
        directory: str,
        reserved_bytes: int,
        *,
        available_bytes: Callable[[], int] = lambda: sys.maxsize,
        rng: random.Random | None = None,
        on_lost: Callable[[Replica], None] = lambda replica: None,
        segment_bytes: int = segment_bytes_max,
    ) -> None:
        self._paths = StorePaths(directory)
        self._reserved_bytes = reserved_bytes
        self._available_bytes = available_bytes
        self._index = ChunkIndex()
        self._large = LargeChunks(self._paths, self._index, on_lost)
        self._segments = Segments(self._index, on_lost)
        self._log = SegmentLog(self._paths, self._segments, rng or random.SystemRandom(), segment_bytes)
        self._compactor = Compactor(self._paths, self._index, self._segments, self._log)
        self._reader = ReplicaReader(self._index, self._large, self._segments)
        self._lock = threading.Lock()
        self._staged: dict[ChunkId, list[Staged]] = {}
        self._turns: dict[ChunkId, fx.Ticket] = {}

    # -- start and end -----------------------------------------------------------------------------

    def recover(self, *, read_only: bool = False) -> fx.Steps[StoreRecovery]:
        """Load the replicas on the disk. Run this once, before anything else. Raises StartupError.

        With `read_only`, nothing is cleaned up; that waits for a later start.
        """
        recovery = StoreRecovery(read_only=read_only)
        try:
            if not read_only:
                yield from self._make_directories()
            yield from SegmentRecovery(self._paths, self._index, self._segments, self._log, recovery).run()
            for chunk, loser in (yield from self._large.recover(recovery)):
                if not read_only or not loser.has_own_file:
                    yield from self._drop(chunk, loser)
        except OSError as error:
            raise StartupError(f"cannot read the store in {self._paths.directory}: {error}") from None
        recovery.replicas = len(self._index)
        return recovery

    def _make_directories(self) -> fx.Steps[None]:
        paths = self._paths
        for path in (paths.staging, paths.chunks, paths.segments, paths.damaged):
            yield from fx.make_directory(path)
        yield from fx.sync_directory(paths.directory)

    def close(self) -> fx.Steps[None]:
        """Write waiting tombstones and close the active segment. No method may be called afterwards."""
        # Without its tombstone, a deleted replica reappears at the next start, which is harmless.
        with contextlib.suppress(ChunkError):
            yield from self._log.flush()
        yield from self._log.close()

    # -- writing -----------------------------------------------------------------------------------

    def stage(self, chunk: ChunkId, version: Version) -> Staged:
        """Begin a chunk, and fence the writers of older versions of it. Does no I/O.

        Raises StaleVersion if a higher version exists or is being written, DiskFull if there is no room.
        """
        self._refuse_when_full()
        staged = Staged(chunk, version, self._paths.directory)
        with self._lock:
            others = self._staged.get(chunk, [])
            present = self._index.find(chunk)
            seen = max([present.version if present else 0, *(other.version for other in others)])
            if version < seen:
                raise StaleVersion(f"{describe(chunk, version)} is stale: version {show(seen)} has been seen")
            for other in others:
                other.is_fenced |= other.version < version
            self._staged[chunk] = [*others, staged]
        return staged

    def write(self, staged: Staged, sums: Bytes, data: Bytes) -> fx.Steps[None]:
        """Append data with its packed block checksums `sums`. Only the last call may end inside a block.

        Raises ChecksumMismatch, StaleVersion, DiskFull or DiskFault. The last two discard the chunk.
        """
        self._verify(staged, sums, data)
        yield from self._or_discard(staged, self._write(staged, sums, data))

    def _verify(self, staged: Staged, sums: Bytes, data: Bytes) -> None:
        self._refuse_if_fenced(staged)
        if staged.length % checksum_block_bytes:
            raise BadRequest(f"data of {describe(staged.chunk, staged.version)} after a block that was not full")
        verify_blocks(data, sums, lambda: describe(staged.chunk, staged.version))

    def _write(self, staged: Staged, sums: Bytes, data: Bytes) -> fx.Steps[None]:
        self._refuse_when_full()
        length = staged.length + len(data)
        if staged.file is None and length <= small_chunk_bytes_max:
            staged.buffered = b"".join((staged.buffered, data)) if staged.buffered else bytes(data)
        else:
            if staged.file is None:
                staged.file = yield from self._large.stage(staged.chunk, staged.version)
            yield from fx.append(staged.file.file, staged.buffered, data)
            staged.buffered = b""
            if staged.length // writeback_bytes != length // writeback_bytes:
                yield from fx.start_writeback(staged.file.file)
        staged.length = length
        staged.sums += sums

    def seal(self, staged: Staged, sums: Bytes = b"", data: Bytes = b"") -> fx.Steps[Sealed]:
        """Make the chunk exist: on return it is complete, fsynced, and has replaced any older version.

        `sums` and `data` are written to the end first, as by `write`, with its errors. Sealing the same version
        with the same content again succeeds, and replaces a replica that cannot be read back. Raises StaleVersion
        if a higher version came in between, ChunkError if this version exists with other content, DiskFull or
        DiskFault. After any error the chunk is discarded.
        """
        return self._or_discard(staged, self._finish(staged, sums, data))

    def _finish(self, staged: Staged, sums: Bytes, data: Bytes) -> fx.Steps[Sealed]:
        if len(data) or len(sums):
            self._verify(staged, sums, data)
            yield from self._write(staged, sums, data)
        return (yield from self._in_turn(staged.chunk, self._seal(staged)))

    def take(self, chunk: ChunkId, version: Version, sums: Bytes, data: Bytes) -> Staged:
        """Stage a whole small chunk, for `seal_many`. Does no I/O. The caller must not change `data` later.

        Raises the errors of `stage`, and ChecksumMismatch.
        """
        assert len(data) <= small_chunk_bytes_max
        staged = self.stage(chunk, version)
        try:
            verify_blocks(data, sums, lambda: describe(chunk, version))
        except ChecksumMismatch:
            self._end(staged)
            raise
        staged.length, staged.buffered = len(data), data
        staged.sums += sums
        staged.checksum = chunk_checksum(sums)
        return staged

    def seal_many(self, chunks: Sequence[Staged]) -> fx.Steps[list[Sealed | ChunkError]]:
        """Make chunks from `take` durable, with as few fsyncs as possible.

        Return for each chunk what `seal` would return or raise. A refused chunk does not affect the others.
        """
        outcomes: dict[Staged, Sealed | ChunkError] = {}
        together: list[Staged] = []
        turn = fx.Ticket()
        with self._lock:
            for staged in chunks:
                if not (staged.is_fenced or staged.chunk in self._turns or self._index.find(staged.chunk)):
                    self._turns[staged.chunk] = turn
                    together.append(staged)
        try:
            for at in range(0, len(together), segment_batch_records_max):
                part = together[at : at + segment_batch_records_max]
                records = [NewRecord(each.chunk, each.version, bytes(each.sums), each.buffered) for each in part]
                try:
                    yield from self._log.append(records)
                except ChunkError as fault:
                    outcomes.update(dict.fromkeys(part, fault))
                else:
                    for staged, record in zip(part, records, strict=True):
                        assert record.superseded_file is None, "no replica was here, and the turn is ours"
                        outcomes[staged] = (
                            Sealed(staged.length, staged.checksum) if record.is_published else self._stale(staged)
                        )
        finally:
            with self._lock:
                for staged in together:
                    del self._turns[staged.chunk]
            self._end(*together)
            turn.fire()
        for staged in chunks:
            if staged not in outcomes:
                try:
                    outcomes[staged] = yield from self.seal(staged)
                except ChunkError as fault:
                    outcomes[staged] = fault
        return [outcomes[staged] for staged in chunks]

    def read_staged(self, staged: Staged, offset: int, length: int) -> fx.Steps[bytes]:
        """Return bytes of a large chunk that is not sealed. The caller verifies them. Raises DiskFault."""
        assert staged.file is not None
        return self._or_discard(staged, self._large.read_staged(staged.file, offset, length))

    def discard(self, staged: Staged) -> fx.Steps[None]:
        """Discard a chunk that will not be sealed. Does nothing if it was sealed or discarded already."""
        if staged.is_over:
            return
        self._end(staged)
        if staged.file is not None:
            yield from self._large.discard(staged.file)

    def _seal(self, staged: Staged) -> fx.Steps[Sealed]:
        self._refuse_if_fenced(staged)
        sealed = Sealed(staged.length, chunk_checksum(staged.sums))
        present = self._index.find(staged.chunk)
        # Usually a higher version has fenced this one. But its writer may have given up while the disk hung, and
        # been forgotten; its replica can still appear, by now or before this one does.
        if present is not None and present.version > staged.version:
            raise self._stale(staged)
        if present is not None and present.version == staged.version:
            if (yield from self._is_sound(staged, sealed)):
                yield from self.discard(staged)
                return sealed
            # The existing replica has become corrupt. The new bytes replace it.
            yield from self._delete(staged.chunk, staged.version)
        place = IndexedPlace(staged.version, staged.length)
        if staged.file is None:
            superseded = yield from self._seal_small(staged)
        else:
            yield from self._large.publish(staged.file, staged.chunk, place, bytes(staged.sums))
            superseded = self._index.publish(staged.chunk, place)
        self._end(staged)
        if superseded is not None:
            yield from self._drop(staged.chunk, superseded)
        if staged.file is not None and superseded == place:
            raise self._stale(staged)
        return sealed

    def _seal_small(self, staged: Staged) -> fx.Steps[IndexedPlace | None]:
        """Return the replaced file, if any. A replaced record is already marked as dead."""
        record = NewRecord(staged.chunk, staged.version, bytes(staged.sums), staged.buffered)
        yield from self._log.append((record,))
        if not record.is_published:
            raise self._stale(staged)
        return record.superseded_file

    def _is_sound(self, staged: Staged, sealed: Sealed) -> fx.Steps[bool]:
        """Return whether the existing replica can be acknowledged again, after reading every block of it.

        Raises ChunkError if it was sealed with other content.
        """
        try:
            plan = yield from self._reader.open(staged.chunk, staged.version, 0, sealed.length)
            if Sealed(plan.length, chunk_checksum(plan.sums)) == sealed:
                while (yield from self._reader.read_blocks(plan)) is not None:
                    pass
                return True
            yield from self._reader.close(plan)
        except (ChecksumMismatch, ChunkNotFound, DiskFault):
            return False
        raise ChunkError(f"{describe(staged.chunk, staged.version)} is already sealed with other content")

    def _refuse_when_full(self) -> None:
        if self._available_bytes() < self._reserved_bytes:
            raise DiskFull(f"less than the reserve of {self._reserved_bytes} bytes is left on the disk")

    def _refuse_if_fenced(self, staged: Staged) -> None:
        assert not staged.is_over, "a staged chunk is written by its owner alone, until it is sealed or discarded"
        if staged.is_fenced:
            raise self._stale(staged)

    def _stale(self, staged: Staged) -> StaleVersion:
        return StaleVersion(f"{describe(staged.chunk, staged.version)} is stale: a higher version was begun")

    def _end(self, *chunks: Staged) -> None:
        with self._lock:
            for staged in chunks:
                staged.is_over = True
                others = [other for other in self._staged[staged.chunk] if other is not staged]
                if others:
                    self._staged[staged.chunk] = others
                else:
                    del self._staged[staged.chunk]

    def _or_discard(self, staged: Staged, steps: fx.Steps[T]) -> fx.Steps[T]:
        try:
            return (yield from steps)
        except OSError as error:
            yield from self.discard(staged)
            raise named_fault(error, f"cannot store {describe(staged.chunk, staged.version)}") from None
        except PeacefsError:
            yield from self.discard(staged)
            raise

    def _in_turn(self, chunk: ChunkId, steps: fx.Steps[T]) -> fx.Steps[T]:
        """Run `steps` while no other seal or delete of the chunk is under way."""
        mine = fx.Ticket()
        while True:
            with self._lock:
                busy = self._turns.setdefault(chunk, mine)
            if busy is mine:
                break
            if not (yield from fx.wait(busy, timeout_s=disk_timeout_s)):
                raise DiskFault(f"another seal or delete of chunk {show(chunk)} does not end")
        try:
            return (yield from steps)
        finally:
            with self._lock:
                del self._turns[chunk]
            mine.fire()

    # -- reading -----------------------------------------------------------------------------------

    def open_read(self, chunk: ChunkId, version: Version, offset: int, length: int) -> fx.Steps[ReadPlan]:
        """Open a replica of at least `version`, for the blocks that contain the range (cut to the chunk's length).

        A later delete or compaction does not disturb the reader. `read_blocks` closes the replica after the last
        block and after an error; a caller that stops early must call `close_read`. Raises ChunkNotFound,
        StaleVersion, ChecksumMismatch or DiskFault.
        """
        return self._reader.open(chunk, version, offset, length)

    def read_blocks(self, plan: ReadPlan, bytes_max: int = packet_bytes) -> fx.Steps[Blocks | None]:
        """Return the next verified blocks, up to `bytes_max`, a multiple of a block; None after the last.

        Raises ChecksumMismatch or DiskFault.
        """
        return self._reader.read_blocks(plan, bytes_max)

    def send_blocks(self, plan: ReadPlan, reader: fx.Connection, *, timeout_s: float) -> fx.Steps[int | None]:
        """Send the next blocks to a reader that verifies them. Return the number of bytes; None after the last.

        Blocks of a large chunk are not verified here. Raises ChecksumMismatch, DiskFault, or the connection's
        PeerError, after which the plan must still be closed. A disk error inside a frame closes the connection.
        """
        return self._reader.send_blocks(plan, reader, timeout_s=timeout_s)

    def read_small(self, wanted: Sequence[WantedRange]) -> fx.Steps[list[Blocks | None]]:
        """Return verified blocks for each range that can be read from a segment in memory, else None.

        None does not mean that the replica is missing or damaged: `open_read` finds that out.
        """
        return self._reader.read_small(wanted)

    def close_read(self, plan: ReadPlan) -> fx.Steps[None]:
        """Close a replica. Does nothing if it is closed already."""
        return self._reader.close(plan)

    def drop_cached(self, plan: ReadPlan) -> fx.Steps[None]:
        """Make the next read of a large chunk come from the medium. (A small chunk is in memory already.)"""
        if plan.file is not None:
            yield from fx.drop_cached(plan.file)

    # -- the rest ----------------------------------------------------------------------------------

    def delete(self, chunk: ChunkId, version: Version) -> fx.Steps[bool]:
        """Delete the replica if its version is at most `version`; return whether it was deleted.

        Raises DiskFault if the disk is read-only: the replica is then forgotten, but reappears at the next start.
        """
        try:
            return (yield from self._in_turn(chunk, self._delete(chunk, version)))
        except OSError as error:
            raise named_fault(error, f"cannot remove {describe(chunk, version)}") from None

    def _delete(self, chunk: ChunkId, version: Version) -> fx.Steps[bool]:
        place = self._index.drop(chunk, version)
        if place is None:
            return False
        yield from self._drop(chunk, place)
        if self._segments.tombstones_waiting >= tombstones_waiting_max:
            # Tombstones that a full disk does not accept keep waiting.
            with contextlib.suppress(ChunkError):
                yield from self._log.flush()
        return True

    def _drop(self, chunk: ChunkId, place: IndexedPlace) -> fx.Steps[None]:
        """Dispose of a place that is no longer in the index."""
        if place.has_own_file:
            yield from self._large.remove(chunk, place)
        else:
            self._segments.kill(chunk, place)

    def compact(self) -> fx.Steps[Compaction]:
        """Run one round of compaction. Call this periodically, and repeat while segments are removed.

        Raises DiskFull or DiskFault. What was done before the error is kept.
        """
        try:
            return (yield from self._compactor.run())
        except OSError as error:
            raise named_fault(error, "cannot compact segments") from None

    def find(self, chunk: ChunkId) -> Replica | None:
        place = self._index.find(chunk)
        return None if place is None else Replica(chunk, place.version, place.length)

    def replicas(self) -> list[Replica]:
        return self._index.replicas()

    def count(self) -> int:
        return len(self._index)

    @property
    def segments(self) -> int:
        """The number of segment files."""
        return len(self._segments)

    def chunks_after(self, chunk: ChunkId, limit: int) -> list[ChunkId]:
        """Return the next chunks above `chunk`, in order, that have replicas here."""
        return self._index.chunks_after(chunk, limit)

    def usage(self) -> Usage:
        """Return the bytes that chunks use and may still use. The capacity is the sum of both."""
        used_bytes = self._large.used_bytes + self._segments.used_bytes
        available_bytes = max(0, self._available_bytes() - self._reserved_bytes)
        live_bytes = self._large.used_bytes + self._segments.live_bytes
        return Usage(used_bytes + available_bytes, used_bytes, available_bytes, live_bytes=live_bytes)
