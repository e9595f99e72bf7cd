"""Maps each replica on a disk to its place. Nothing else is kept in memory about a replica.

A place is packed into 24 bytes, so that a replica costs about 150 bytes including its key and hash table slot.
Thread-safe; each method is atomic.
"""

from __future__ import annotations

import struct
import threading
from heapq import nsmallest
from typing import NamedTuple

from peacefs.protocol.ids import ChunkId, Version
from peacefs.protocol.messages import Replica

_PLACE = struct.Struct(">QQII")


class IndexedPlace(NamedTuple):
    """The place of a replica: an offset in a segment, or a file of its own, shown as segment 0."""

    version: Version
    length: int
    segment: int = 0
    offset: int = 0

    @property
    def has_own_file(self) -> bool:
        return self.segment == 0


class ChunkIndex:
    """At most one place per chunk: the one with the highest version."""

    def __init__(self) -> None:
        self._packed: dict[ChunkId, bytes] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._packed)

    def find(self, chunk: ChunkId) -> IndexedPlace | None:
        packed = self._packed.get(chunk)
        return None if packed is None else IndexedPlace(*_PLACE.unpack(packed))

    def publish(self, chunk: ChunkId, place: IndexedPlace) -> IndexedPlace | None:
        """Store `place` unless there is a higher version. Return the superseded place, old or new, if any."""
        with self._lock:
            present = self.find(chunk)
            if present is not None and present.version > place.version:
                return place
            self._packed[chunk] = _PLACE.pack(*place)
            return present

    def move(self, chunk: ChunkId, source: IndexedPlace, target: IndexedPlace) -> bool:
        """Replace `source` by `target`. Return False if `source` is no longer stored."""
        with self._lock:
            if self._packed.get(chunk) != _PLACE.pack(*source):
                return False
            self._packed[chunk] = _PLACE.pack(*target)
            return True

    def drop(self, chunk: ChunkId, newest: Version) -> IndexedPlace | None:
        """Remove a replica whose version is at most `newest`, and return its place; None if there is none."""
        with self._lock:
            present = self.find(chunk)
            if present is None or present.version > newest:
                return None
            del self._packed[chunk]
            return present

    def forget(self, chunk: ChunkId, place: IndexedPlace) -> bool:
        """Remove `place`. Return False if `place` is no longer stored."""
        with self._lock:
            if self._packed.get(chunk) != _PLACE.pack(*place):
                return False
            del self._packed[chunk]
            return True

    def replicas(self) -> list[Replica]:
        with self._lock:
            packed = list(self._packed.items())
        replicas = []
        for chunk, place in packed:
            version, length, _segment, _offset = _PLACE.unpack(place)
            replicas.append(Replica(chunk, version, length))
        return replicas

    def chunks_after(self, chunk: ChunkId, limit: int) -> list[ChunkId]:
        """Return the next chunks above `chunk`, in order. Slow: scans the whole index. For rare calls only."""
        with self._lock:
            chunks = list(self._packed)
        return nsmallest(limit, (each for each in chunks if each > chunk))

    def in_segment(self, number: int) -> list[tuple[ChunkId, IndexedPlace]]:
        """Return all replicas in a segment. Slow: scans the whole index. For damaged segments only."""
        with self._lock:
            packed = list(self._packed.items())
        places = ((chunk, IndexedPlace(*_PLACE.unpack(place))) for chunk, place in packed)
        return [(chunk, place) for chunk, place in places if place.segment == number]
