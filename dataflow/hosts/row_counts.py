"""Count the rows that each node sends on each stream, to itself as well, for those who measure.

Each process counts in a file of its own, which it maps: the counts are there after it was killed.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

#: A record: the stream's name, cut to fit, and the rows.
_RECORD_BYTES = 128
_NAME_BYTES = 120
#: In the machine's own order, so that a count is written at once.
_COUNT = struct.Struct("q")


class RowCounts:
    """Counts of all processes of a query, in a directory. A value that is sent to nodes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def counter(self, node: str) -> Callable[[str, int], None]:
        """Return a function that is told of the rows of a stream that this process sends."""
        return _CountFile(self._directory / f"{node}-{os.getpid()}").add

    def total(self) -> Counter[tuple[str, str]]:
        """Return the rows that were sent so far, by node, of all its processes, and by stream."""
        found: Counter[tuple[str, str]] = Counter()
        for path in self._directory.iterdir():
            data = path.read_bytes()
            node = path.name.rpartition("-")[0]
            for at in range(0, len(data), _RECORD_BYTES):
                stream = data[at : at + _NAME_BYTES].rstrip(b"\0").decode(errors="replace")
                if not stream:
                    break
                found[node, stream] += _COUNT.unpack_from(data, at + _NAME_BYTES)[0]
        return found


class _CountFile:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w+b") as file:
            file.truncate(mmap.PAGESIZE)
            self._map = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self._places: dict[str, int] = {}

    def add(self, stream: str, rows: int) -> None:
        at = self._places.get(stream)
        if at is None:
            first = len(self._places) * _RECORD_BYTES
            if first == len(self._map):
                self._map.resize(2 * first)
            name = stream.encode()[:_NAME_BYTES]
            self._map[first : first + len(name)] = name
            at = self._places[stream] = first + _NAME_BYTES
        _COUNT.pack_into(self._map, at, _COUNT.unpack_from(self._map, at)[0] + rows)
