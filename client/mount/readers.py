"""Reads one version of a file for one open handle: in sequence with read-ahead, or anywhere."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from peacefs.client.file_objects import FileSource
from peacefs.protocol.ids import ChunkId


class VersionReader:
    """The version that an open found. A program that reads on where it stopped is read ahead for."""

    def __init__(self, source: FileSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._next = 0

    @property
    def length(self) -> int:
        return self._source.length

    @property
    def chunks(self) -> Sequence[tuple[ChunkId, int]]:
        return self._source.chunks

    def read_into(self, offset: int, target: memoryview) -> int:
        """Fill `target` from `offset` up to the end of the file; return the number of bytes."""
        with self._lock:
            is_next, self._next = offset == self._next, offset + len(target)
            if is_next:
                if self._source.tell() != offset:
                    self._source.seek(offset)
                count = self._source.readinto(target)
                self._next = offset + count
                return count
        return self._source.read_into_at(offset, target)

    def close(self) -> None:
        with self._lock:
            self._source.close()


def extends(longer: Sequence[tuple[ChunkId, int]], shorter: Sequence[tuple[ChunkId, int]]) -> bool:
    """Return whether a version, given by the ids and lengths of its chunks, begins with another version."""
    if not shorter:
        return True
    *whole, (last, last_length) = shorter
    at = len(whole)
    return (
        len(longer) > at and list(longer[:at]) == whole and longer[at][0] == last and longer[at][1] >= last_length
    )
