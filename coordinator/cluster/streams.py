"""Chunks that are being written, or may be, and until when. Pure.

A stream ends when its file is published, when its writer gives it up, or when its token has expired.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Set

from peacefs.protocol.ids import ChunkId

_SLACK = 1000


class Streams:
    """What their writers have leave for. Whether one makes use of it only its datanodes know."""

    def __init__(self) -> None:
        self._chunks: set[ChunkId] = set()
        #: In order, for all tokens live equally long. Also those that have ended since.
        self._deadlines: deque[tuple[float, ChunkId]] = deque()

    def open(self, chunk: ChunkId, deadline_s: float) -> None:
        self._chunks.add(chunk)
        self._deadlines.append((deadline_s, chunk))
        if len(self._deadlines) > 2 * len(self._chunks) + _SLACK:
            self._deadlines = deque(entry for entry in self._deadlines if entry[1] in self._chunks)

    def close(self, chunk: ChunkId) -> None:
        """That it has ended already is fine."""
        self._chunks.discard(chunk)

    def close_overdue(self, now_s: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now_s:
            self.close(self._deadlines.popleft()[1])

    @property
    def chunks(self) -> Set[ChunkId]:
        return self._chunks
