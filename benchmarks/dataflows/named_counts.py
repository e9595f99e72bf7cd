"""Named counters for measurements.

Each process counts in its own memory-mapped file, so that the counts survive if it is killed.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

#: A record: the name, cut to a fixed length, and the count.
_RECORD_BYTES = 128
_NAME_BYTES = 120
#: In native byte order, so that a count is written in one step.
_COUNT = struct.Struct("q")


class NamedCounts:
    """The counters of this process, in a file in a directory."""

    def __init__(self, directory: Path, node: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / f"{node}-{os.getpid()}").open("w+b") as file:
            file.truncate(mmap.PAGESIZE)
            self._map = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self._places: dict[str, int] = {}

    def add(self, name: str, more: int) -> None:
        at = self._places.get(name)
        if at is None:
            at = self._places[name] = self._begin(name)
        _COUNT.pack_into(self._map, at, _COUNT.unpack_from(self._map, at)[0] + more)

    def _begin(self, name: str) -> int:
        """Write the name of a new record, and return the offset of its count."""
        first = len(self._places) * _RECORD_BYTES
        if first == len(self._map):
            self._map.resize(2 * first)
        cut = name.encode()[:_NAME_BYTES]
        self._map[first : first + len(cut)] = cut
        return first + _NAME_BYTES


def read_counts(directory: Path) -> Iterator[tuple[str, str, int]]:
    """Yield the present counts of all processes: node, name, count."""
    for path in directory.iterdir():
        data = path.read_bytes()
        node = path.name.rpartition("-")[0]
        for at in range(0, len(data), _RECORD_BYTES):
            name = data[at : at + _NAME_BYTES].rstrip(b"\0").decode(errors="replace")
            if not name:
                break
            yield node, name, _COUNT.unpack_from(data, at + _NAME_BYTES)[0]
