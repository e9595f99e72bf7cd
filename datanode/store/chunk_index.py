"""Map every replica of this datanode to its place: the only thing about a replica that is kept in memory.

A place is packed into 24 bytes, so that a replica costs about 150 bytes with its key and its slot in the table.
Thread-safe; each method is one step, whatever else goes on.
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
    """The place of a replica: an offset in a segment, or, as segment 0, a file of its own."""

    version: Version
    length: int
    segment: int = 0
    offset: int = 0

    @property
    def has_own_file(self) -> bool:
        return self.segment == 0


class ChunkIndex:
    """At most one place for each chunk: the one with the highest version."""

    def __init__(self) -> None:
        self._packed: dict[ChunkId, bytes] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._packed)

    def find(self, chunk: ChunkId) -> IndexedPlace | None:
        packed = self._packed.get(chunk)
        return None if packed is None else IndexedPlace(*_PLACE.unpack(packed))

    def publish(self, chunk: ChunkId, place: IndexedPlace) -> IndexedPlace | None:
        """Installs `place` unless a higher version is there. Gives the place that lost, old or new."""
        with self._lock:
            present = self.find(chunk)
            if present is not None and present.version > place.version:
                return place
            self._packed[chunk] = _PLACE.pack(*place)
            return present

    def move(self, chunk: ChunkId, source: IndexedPlace, target: IndexedPlace) -> bool:
        """Replaces exactly `source` by `target`; False if something else is there by now."""
        with self._lock:
            if self._packed.get(chunk) != _PLACE.pack(*source):
                return False
            self._packed[chunk] = _PLACE.pack(*target)
            return True

    def drop(self, chunk: ChunkId, newest: Version) -> IndexedPlace | None:
        """Removes and gives the place of a replica whose version is not above `newest`."""
        with self._lock:
            present = self.find(chunk)
            if present is None or present.version > newest:
                return None
            del self._packed[chunk]
            return present

    def forget(self, chunk: ChunkId, place: IndexedPlace) -> bool:
        """Removes exactly `place`; False if something else is there by now."""
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
        """The next chunks above `chunk`, in order. Walks the whole index: for who has work for minutes then."""
        with self._lock:
            chunks = list(self._packed)
        return nsmallest(limit, (each for each in chunks if each > chunk))

    def in_segment(self, number: int) -> list[tuple[ChunkId, IndexedPlace]]:
        """Every replica in a segment. Walks the whole index: only for a segment that is damaged."""
        with self._lock:
            packed = list(self._packed.items())
        places = ((chunk, IndexedPlace(*_PLACE.unpack(place))) for chunk, place in packed)
        return [(chunk, place) for chunk, place in places if place.segment == number]
