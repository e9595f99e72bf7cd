"""Count the bytes that go over the links of a query, by kind and subject, for those who measure.

Each process counts in a file of its own, which it maps: the counts are there after it was killed.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from peacefs.dataflow.core.messages import CopyPiece, Message

from .costs import Costs, Traffic

#: A record: the kind and the subject, cut to fit, then messages and bytes.
_RECORD_BYTES = 128
_NAME_BYTES = 112
#: In the machine's own order, so that a count is written at once.
_COUNTS = struct.Struct("qq")
_BETWEEN = "\t"
#: It knows of each message of which kind it is; sizes here are those of our encoding.
_KINDS = Costs()


class LinkTraffic:
    """Counts of all processes of a query, in a directory. A value that is sent to nodes.

    traffic = LinkTraffic(directory)
    host.start(network, technique, sources, sinks, RunOptions(traffic=traffic))
    traffic.total()
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def counter(self, node: str) -> Callable[[Message, int], None]:
        """Return a function that is told of each message that this process has sent, and of its bytes."""
        return _CountFile(self._directory / f"{node}-{os.getpid()}").add

    def total(self) -> Counter[tuple[Traffic, str]]:
        """Return the bytes that were sent so far, by kind and by the stream or unit that they were about."""
        found: Counter[tuple[Traffic, str]] = Counter()
        for path in self._directory.iterdir():
            data = path.read_bytes()
            for at in range(0, len(data), _RECORD_BYTES):
                name = data[at : at + _NAME_BYTES].rstrip(b"\0").decode(errors="replace")
                if not name:
                    break
                kind, _, subject = name.partition(_BETWEEN)
                _, size = _COUNTS.unpack_from(data, at + _NAME_BYTES)
                found[Traffic(kind), subject] += size
        return found


class _CountFile:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w+b") as file:
            file.truncate(mmap.PAGESIZE)
            self._map = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self._places: dict[tuple[Traffic, str], int] = {}

    def add(self, message: Message, size: int) -> None:
        if isinstance(message, CopyPiece):
            kind, subject = Traffic.REPLICATION, message.unit
        else:
            kind, subject, _ = _KINDS.size(message)
        at = self._places.get((kind, subject))
        if at is None:
            at = self._new(kind, subject)
        messages, total = _COUNTS.unpack_from(self._map, at)
        _COUNTS.pack_into(self._map, at, messages + 1, total + size)

    def _new(self, kind: Traffic, subject: str) -> int:
        """Write the name of a record, and return the place of its counts."""
        first = len(self._places) * _RECORD_BYTES
        if first == len(self._map):
            self._map.resize(2 * first)
        name = f"{kind.value}{_BETWEEN}{subject}".encode()[:_NAME_BYTES]
        self._map[first : first + len(name)] = name
        self._places[kind, subject] = first + _NAME_BYTES
        return first + _NAME_BYTES
