"""The segment files of one disk, and how much of each is live.

A record is live while the index points at it. Killing a record needs no I/O: a tombstone waits in memory for the
next append. If a crash loses the tombstone, the deleted chunk reappears, which is harmless. A tombstone is needed
as long as the segment of the record that it kills exists.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import ChecksumMismatch
from peacefs.protocol.ids import ChunkId, Version
from peacefs.protocol.messages import Replica
from peacefs.runtime import effects as fx

from .chunk_index import ChunkIndex, IndexedPlace
from .layout import (
    HEADER_BYTES,
    Record,
    RecordKind,
    describe,
    record_bytes,
    sums_bytes,
    unpack_record,
)
from .segment_scan import SegmentScan


@dataclass(slots=True)
class Segment:
    """One segment file. `end` is its size, `live_bytes` the size of its records that the index points at.

    `is_open`: records are still appended. `is_suspect`: the disk failed on it, or it is partly damaged, so that
    compaction must copy its records elsewhere.
    """

    number: int
    salt: int
    path: str
    end: int = 0
    live_bytes: int = 0
    is_open: bool = False
    is_suspect: bool = False
    #: Bytes of tombstones in this segment, by the segment of the records that they kill.
    tombstones: dict[int, int] = field(default_factory=dict)

    def part(self, place: IndexedPlace) -> fx.Part:
        """Return the file, offset and length of a record of this segment."""
        return self.path, place.offset, record_bytes(place.length)

    def unpack(self, chunk: ChunkId, place: IndexedPlace, raw: bytes) -> tuple[bytes, bytes]:
        """Split the bytes of a record into checksums and data. Raises ChecksumMismatch for a damaged header."""
        record = unpack_record(raw, 0, self.salt)
        if record is None or record[:4] != (RecordKind.CHUNK, chunk, place.version, place.length):
            raise ChecksumMismatch(f"the header of {describe(chunk, place.version)} is damaged")
        data_at = HEADER_BYTES + sums_bytes(place.length)
        return raw[HEADER_BYTES:data_at], raw[data_at:]


@dataclass(slots=True)
class NewRecord:
    """A chunk to be written to a segment, and the result.

    `moved_from` is the place from which compaction copies it. The record replaces only that place in the index.
    """

    chunk: ChunkId
    version: Version
    sums: bytes
    data: Bytes
    moved_from: IndexedPlace | None = None
    #: True if the index now points at the record; False if something newer was there first.
    is_published: bool = False
    #: The chunk's own file that the record replaced, if any; the writer removes it.
    superseded_file: IndexedPlace | None = None


class Tombstone(NamedTuple):
    """A dead record whose tombstone has not been written yet."""

    chunk: ChunkId
    place: IndexedPlace


class Segments:
    """All segments of one disk, their live bytes, and the waiting tombstones. Thread-safe.

    The log, the compactor and `ChunkStore` change it; `ReplicaReader` reads records through it.
    """

    def __len__(self) -> int:
        return len(self._segments)

    def __init__(self, index: ChunkIndex, on_lost: Callable[[Replica], None]) -> None:
        self._index = index
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._segments: dict[int, Segment] = {}
        self._waiting: list[Tombstone] = []

    # -- the set -----------------------------------------------------------------------------------

    def add(self, segment: Segment) -> None:
        with self._lock:
            self._segments[segment.number] = segment

    def discard(self, segment: Segment) -> None:
        """Forget a segment whose file was removed, because nothing in it was live."""
        with self._lock:
            del self._segments[segment.number]

    def closed(self) -> list[tuple[Segment, int]]:
        """Return each segment that receives no more records, and its number of needed bytes."""
        with self._lock:
            return [(each, self._needed_bytes(each)) for each in self._segments.values() if not each.is_open]

    def _needed_bytes(self, segment: Segment) -> int:
        return segment.live_bytes + sum(
            size
            for target, size in segment.tombstones.items()
            if target != segment.number and target in self._segments
        )

    @property
    def used_bytes(self) -> int:
        with self._lock:
            return sum(segment.end for segment in self._segments.values())

    @property
    def live_bytes(self) -> int:
        """The bytes of segments that replicas need."""
        with self._lock:
            return sum(segment.live_bytes for segment in self._segments.values())

    # -- live and dead records ---------------------------------------------------------------------

    def install(self, segment: Segment, offset: int, new: NewRecord) -> None:
        """Point the index at a record that is safe on the disk, and kill the record that it replaces."""
        place = IndexedPlace(new.version, len(new.data), segment.number, offset)
        with self._lock:
            segment.live_bytes += record_bytes(place.length)
        loser: IndexedPlace | None = place
        if new.moved_from is None:
            loser = self._index.publish(new.chunk, place)
        elif self._index.move(new.chunk, new.moved_from, place):
            loser = None
            self.release(new.moved_from)
        new.is_published = loser != place
        if loser is not None and loser.has_own_file:
            new.superseded_file = loser
        elif loser is not None:
            self.kill(new.chunk, loser)

    def release(self, place: IndexedPlace) -> None:
        """Count a record as dead without a tombstone: its segment will be removed, or a better copy exists."""
        with self._lock:
            segment = self._segments.get(place.segment)
            if segment is not None:
                segment.live_bytes -= record_bytes(place.length)

    def kill(self, chunk: ChunkId, place: IndexedPlace) -> None:
        """Count a record as dead, and queue a tombstone so that it stays dead after a restart."""
        self.release(place)
        with self._lock:
            self._waiting.append(Tombstone(chunk, place))

    def lose(self, chunk: ChunkId, place: IndexedPlace) -> None:
        """Report an unreadable live record as lost, unless it was replaced by now."""
        if self._index.forget(chunk, place):
            self.release(place)
            self._on_lost(Replica(chunk, place.version, place.length))

    # -- tombstones --------------------------------------------------------------------------------

    @property
    def tombstones_waiting(self) -> int:
        return len(self._waiting)

    def take_tombstones(self) -> list[Tombstone]:
        """Return the waiting tombstones that are still needed. The caller writes them or puts them back."""
        with self._lock:
            taken = [each for each in self._waiting if each.place.segment in self._segments]
            self._waiting.clear()
            return taken

    def put_back(self, tombstones: Sequence[Tombstone]) -> None:
        with self._lock:
            self._waiting.extend(tombstones)

    def count_tombstone(self, segment: Segment, target: int) -> None:
        """Count one more tombstone in `segment` for a record of segment `target`."""
        with self._lock:
            segment.tombstones[target] = segment.tombstones.get(target, 0) + HEADER_BYTES

    def keep_tombstone(self, record: Record) -> None:
        """Queue a tombstone from a segment that will be removed, to be written again if it is still needed."""
        self.put_back([Tombstone(record.chunk, IndexedPlace(record.version, 0, record.segment, record.offset))])

    # -- reading -----------------------------------------------------------------------------------

    def read(self, chunk: ChunkId, place: IndexedPlace) -> fx.Steps[tuple[bytes, bytes]]:
        """Return checksums and data of a record, after verifying its header.

        Raises ChecksumMismatch for a damaged header, FileNotFoundError if compaction has moved the record.
        """
        segment = self.find(place)
        if segment is None:
            raise FileNotFoundError
        return segment.unpack(chunk, place, (yield from fx.read_part(*segment.part(place))))

    def find(self, place: IndexedPlace) -> Segment | None:
        """Return the segment of a record; None if compaction has moved the record and removed the segment."""
        return self._segments.get(place.segment)

    def lose_what_fails(self, segment: Segment, file: fx.File) -> fx.Steps[None]:
        """Read a segment back from the medium after an error, and report records that are not intact as lost."""
        yield from fx.drop_cached(file)
        intact = set()
        scan = SegmentScan(file, segment.end, segment.salt, with_data=True)
        while (window := (yield from scan.next_window())) is not None:
            intact |= {found.offset for found in window if found.intact}
        for chunk, place in self._index.in_segment(segment.number):
            if place.offset not in intact:
                self.lose(chunk, place)
