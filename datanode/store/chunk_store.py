"""The chunk store of a datanode: sealed, checksummed, immutable replicas on one disk.

A chunk is staged, written block by block, and sealed: only then does it exist, whole and fsynced. Large chunks
get a file each, small ones share segment files. Every byte is verified before it is stored and again before it
is used: here, or by the reader that it is sent to. Versions fence: whoever writes an older version of a chunk
than the store has seen is refused.

All methods that do I/O are participants (see `effects`), to be run from any number of threads. They raise
classes of `ChunkError`; no OSError leaves the store.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from peacefs.datanode.limits import disk_timeout_s
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
from .replica_reader import Blocks, ReadPlan, ReplicaReader
from .segment_log import SegmentLog
from .segment_recovery import SegmentRecovery
from .segments import NewRecord, Segments

# A large chunk is handed to the disk in such pieces while it is being received.
writeback_bytes: Final = 8 * MIB
segment_bytes_max: Final = 64 * MIB
# Tombstones wait in memory for the next append, up to this many.
tombstones_waiting_max: Final = 1000


__all__ = ["Blocks", "ChunkStore", "ReadPlan", "Sealed", "Staged", "StoreRecovery"]

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Staged:
    """A chunk that is being written; owned by one participant until it is sealed or discarded."""

    chunk: ChunkId
    version: Version
    length: int = 0
    sums: bytearray = field(default_factory=bytearray)
    #: The data of a chunk that is still small; empty once it has a file.
    buffered: bytearray = field(default_factory=bytearray)
    file: StagedFile | None = None
    #: Somebody stages a higher version.
    is_fenced: bool = False
    is_over: bool = False


class Sealed(NamedTuple):
    """The replica that the store holds now; `checksum` is the CRC32C of the packed block checksums."""

    length: int
    checksum: int


class ChunkStore:
    """All replicas of one datanode.

    `available_bytes` says what the file system has left; below `reserved_bytes` nothing more is taken in.
    (Without it the disk alone says when it is full.) `rng` gives segments their salts. `on_lost` hears of a
    sealed replica that turned out unreadable for good, on the thread that found out.
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
        """Reads what is there; to be run once, before anything else. Raises StartupError.

        With `read_only` the disk takes no change: what should be tidied up is passed over and waits for a start.
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
        """Writes what deletes left waiting and closes the active segment. No method may be used after it."""
        # A deletion that could not be written leaves a replica that comes back at the next start, which does no
        # harm.
        with contextlib.suppress(ChunkError):
            yield from self._log.flush()
        yield from self._log.close()

    # -- writing -----------------------------------------------------------------------------------

    def stage(self, chunk: ChunkId, version: Version) -> Staged:
        """Begins a chunk, and fences those who write older versions of it. Takes no I/O.

        Raises StaleVersion if a higher version is here or on its way, DiskFull if there is no room.
        """
        self._refuse_when_full()
        staged = Staged(chunk, version)
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
        """Appends data whose packed block checksums are `sums`; only the last may end inside a block.

        Raises ChecksumMismatch, StaleVersion, DiskFull or DiskFault; after the last two it is discarded.
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
            staged.buffered += data
        else:
            if staged.file is None:
                staged.file = yield from self._large.stage(staged.chunk, staged.version)
            yield from fx.append(staged.file.file, staged.buffered, data)
            staged.buffered = bytearray()
            if staged.length // writeback_bytes != length // writeback_bytes:
                yield from fx.start_writeback(staged.file.file)
        staged.length = length
        staged.sums += sums

    def seal(self, staged: Staged, sums: Bytes = b"", data: Bytes = b"") -> fx.Steps[Sealed]:
        """Makes the chunk exist: when this returns it is whole, fsynced, and replaces any older version.

        With `sums` and `data` it is written to the end first; all that `write` raises is then raised here.
        The same chunk and version with the same content may be sealed again, which replaces it if it cannot be
        read back. Raises StaleVersion if a higher
        version came in between, ChunkError for the same version with other content, DiskFull or DiskFault;
        after any fault it is discarded.
        """
        return self._or_discard(staged, self._finish(staged, sums, data))

    def _finish(self, staged: Staged, sums: Bytes, data: Bytes) -> fx.Steps[Sealed]:
        if len(data) or len(sums):
            self._verify(staged, sums, data)
            yield from self._write(staged, sums, data)
        return (yield from self._in_turn(staged.chunk, self._seal(staged)))

    def discard(self, staged: Staged) -> fx.Steps[None]:
        """Forgets a chunk that will not be sealed; harmless when it was sealed or discarded before."""
        if staged.is_over:
            return
        self._end(staged)
        if staged.file is not None:
            yield from self._large.discard(staged.file)

    def _seal(self, staged: Staged) -> fx.Steps[Sealed]:
        self._refuse_if_fenced(staged)
        sealed = Sealed(staged.length, chunk_checksum(staged.sums))
        present = self._index.find(staged.chunk)
        # A higher version fences this one. But one whose writer gave up while the disk hung is forgotten, and may
        # be there after all: by now, or by the time that this one is.
        if present is not None and present.version > staged.version:
            raise self._stale(staged)
        if present is not None and present.version == staged.version:
            if (yield from self._is_sound(staged, sealed)):
                yield from self.discard(staged)
                return sealed
            # The replica that is here has rotted since: the fresh bytes take its place.
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
        """Gives the file that the record replaced; a record that it replaced is dead already."""
        record = NewRecord(staged.chunk, staged.version, bytes(staged.sums), staged.buffered)
        yield from self._log.append((record,))
        if not record.is_published:
            raise self._stale(staged)
        return record.superseded_file

    def _is_sound(self, staged: Staged, sealed: Sealed) -> fx.Steps[bool]:
        """Return whether the replica that is here can be acknowledged again: read every block of it.

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

    def _end(self, staged: Staged) -> None:
        with self._lock:
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
        """Runs `steps` when no other seal or delete of the chunk is under way."""
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
        """Opens a replica of at least `version` for the blocks that hold the range, cut to the chunk's length.

        A delete or compaction after this does not disturb the reader. `read_blocks` closes the replica with
        the last block and after a fault; who stops earlier calls `close_read`. Raises ChunkNotFound,
        StaleVersion, ChecksumMismatch or DiskFault.
        """
        return self._reader.open(chunk, version, offset, length)

    def read_blocks(self, plan: ReadPlan, bytes_max: int = packet_bytes) -> fx.Steps[Blocks | None]:
        """The next blocks, `bytes_max` at most, a multiple of a block, verified; None after the last.

        Raises ChecksumMismatch or DiskFault.
        """
        return self._reader.read_blocks(plan, bytes_max)

    def send_blocks(self, plan: ReadPlan, reader: fx.Connection, *, timeout_s: float) -> fx.Steps[int | None]:
        """Sends the next blocks to one who verifies them; gives how many bytes, None after the last.

        Those of a large chunk are not verified here. Raises ChecksumMismatch, DiskFault, or the connection's
        PeerError, after which the plan is still to be closed. After a fault of the disk that left a frame
        unfinished the connection is closed.
        """
        return self._reader.send_blocks(plan, reader, timeout_s=timeout_s)

    def close_read(self, plan: ReadPlan) -> fx.Steps[None]:
        """Lets go of a replica; harmless when that was done before."""
        return self._reader.close(plan)

    def drop_cached(self, plan: ReadPlan) -> fx.Steps[None]:
        """Make the next read of a large chunk come from the medium. (A small one has been read already.)"""
        if plan.file is not None:
            yield from fx.drop_cached(plan.file)

    # -- the rest ----------------------------------------------------------------------------------

    def delete(self, chunk: ChunkId, version: Version) -> fx.Steps[bool]:
        """Drops the replica if its version is not above `version`; says whether it did.

        Raises DiskFault when the disk is read-only: then the replica is forgotten, and back at the next start.
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
            # Those that a full disk does not take go on waiting.
            with contextlib.suppress(ChunkError):
                yield from self._log.flush()
        return True

    def _drop(self, chunk: ChunkId, place: IndexedPlace) -> fx.Steps[None]:
        """Disposes of a place that the index no longer points at."""
        if place.has_own_file:
            yield from self._large.remove(chunk, place)
        else:
            self._segments.kill(chunk, place)

    def compact(self) -> fx.Steps[Compaction]:
        """One round of giving room back; to be called now and then, and again while it removes segments.

        Raises DiskFull or DiskFault; what was done until then stays done.
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
        """Return the number of those replicas."""
        return len(self._index)

    @property
    def segments(self) -> int:
        """Return how many files hold the small chunks."""
        return len(self._segments)

    def chunks_after(self, chunk: ChunkId, limit: int) -> list[ChunkId]:
        """The next chunks above `chunk`, in order, of which replicas are here."""
        return self._index.chunks_after(chunk, limit)

    def usage(self) -> Usage:
        """Return the bytes that chunks use and may still use; the capacity is both together."""
        used_bytes = self._large.used_bytes + self._segments.used_bytes
        available_bytes = max(0, self._available_bytes() - self._reserved_bytes)
        live_bytes = self._large.used_bytes + self._segments.live_bytes
        return Usage(used_bytes + available_bytes, used_bytes, available_bytes, live_bytes=live_bytes)
