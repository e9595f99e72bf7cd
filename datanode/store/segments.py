"""The segment files of this datanode, and how much of each is still alive.

A record is alive while the index points at it. Killing one takes no I/O: a tombstone waits in memory for the
next append, and one that a crash loses lets a deleted chunk come back, which does no harm. A tombstone is
needed for as long as the segment of the record that it kills exists.
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
    """One segment file: `end` is its size, `live_bytes` the records in it that the index points at.

    `is_open` says that records are still appended; `is_suspect` that the disk failed it, or that part of it is
    damaged: what is left of it is to be copied elsewhere.
    """

    number: int
    salt: int
    path: str
    end: int = 0
    live_bytes: int = 0
    is_open: bool = False
    is_suspect: bool = False
    #: Bytes of tombstones here, by the segment of the records that they kill.
    tombstones: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class NewRecord:
    """A chunk on its way into a segment, and what became of it.

    `moved_from` is where compaction copies it from: it then takes that place in the index, and no other.
    """

    chunk: ChunkId
    version: Version
    sums: bytes
    data: Bytes
    moved_from: IndexedPlace | None = None
    #: True if the index now points at the record; False if something newer got there first.
    is_published: bool = False
    #: The file of its own that the record replaced, for its writer to remove.
    superseded_file: IndexedPlace | None = None


class Tombstone(NamedTuple):
    """A dead record that is still to be marked as such."""

    chunk: ChunkId
    place: IndexedPlace


class Segments:
    """The set of segments. Thread-safe."""

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
        """The file of a segment in which nothing lives has been removed."""
        with self._lock:
            del self._segments[segment.number]

    def closed(self) -> list[tuple[Segment, int]]:
        """Every segment that takes no more records, and how many bytes of it are needed."""
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
        """Return the bytes of these that replicas need."""
        with self._lock:
            return sum(segment.live_bytes for segment in self._segments.values())

    # -- life and death of records -----------------------------------------------------------------

    def install(self, segment: Segment, offset: int, new: NewRecord) -> None:
        """Points the index at a record that is safe on the disk, and kills the one that it replaces."""
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
        """A record is dead, and needs no tombstone: its segment is about to go, or a better record outlives it."""
        with self._lock:
            segment = self._segments.get(place.segment)
            if segment is not None:
                segment.live_bytes -= record_bytes(place.length)

    def kill(self, chunk: ChunkId, place: IndexedPlace) -> None:
        """A record is dead, and should be after a restart."""
        self.release(place)
        with self._lock:
            self._waiting.append(Tombstone(chunk, place))

    def lose(self, chunk: ChunkId, place: IndexedPlace) -> None:
        """A record that should be alive turns out unreadable: says so, unless it was replaced by now."""
        if self._index.forget(chunk, place):
            self.release(place)
            self._on_lost(Replica(chunk, place.version, place.length))

    # -- tombstones --------------------------------------------------------------------------------

    @property
    def tombstones_waiting(self) -> int:
        return len(self._waiting)

    def take_tombstones(self) -> list[Tombstone]:
        """Those that wait and are needed; the caller writes them or puts them back."""
        with self._lock:
            taken = [each for each in self._waiting if each.place.segment in self._segments]
            self._waiting.clear()
            return taken

    def put_back(self, tombstones: Sequence[Tombstone]) -> None:
        with self._lock:
            self._waiting.extend(tombstones)

    def count_tombstone(self, segment: Segment, target: int) -> None:
        """`segment` holds one more tombstone for a record of segment `target`."""
        with self._lock:
            segment.tombstones[target] = segment.tombstones.get(target, 0) + HEADER_BYTES

    def keep_tombstone(self, record: Record) -> None:
        """A tombstone whose segment is about to go: waits to be written again if it is still needed."""
        self.put_back([Tombstone(record.chunk, IndexedPlace(record.version, 0, record.segment, record.offset))])

    # -- reading -----------------------------------------------------------------------------------

    def read(self, chunk: ChunkId, place: IndexedPlace) -> fx.Steps[tuple[bytes, bytes]]:
        """Checksums and data of a record, its header verified.

        Raises ChecksumMismatch for a damaged header, FileNotFoundError if compaction has moved the record.
        """
        with self._lock:
            segment = self._segments.get(place.segment)
        if segment is None:
            raise FileNotFoundError
        raw = yield from fx.read_part(segment.path, place.offset, record_bytes(place.length))
        record = unpack_record(raw, 0, segment.salt)
        if record is None or record[:4] != (RecordKind.CHUNK, chunk, place.version, place.length):
            raise ChecksumMismatch(f"the header of {describe(chunk, place.version)} is damaged")
        data_at = HEADER_BYTES + sums_bytes(place.length)
        return raw[HEADER_BYTES:data_at], raw[data_at:]

    def lose_what_fails(self, segment: Segment, file: fx.File) -> fx.Steps[None]:
        """Reads a segment that the disk failed back from the medium; what does not verify is lost."""
        yield from fx.drop_cached(file)
        intact = set()
        scan = SegmentScan(file, segment.end, segment.salt, with_data=True)
        while (window := (yield from scan.next_window())) is not None:
            intact |= {found.offset for found in window if found.intact}
        for chunk, place in self._index.in_segment(segment.number):
            if place.offset not in intact:
                self.lose(chunk, place)
