"""Chunks that are being written, and chunks that their writer has abandoned. Pure.

A write stream ends when its file is published, when its writer abandons it, or when its token has expired.

Replicas of an abandoned chunk are garbage at once, not only when they are below the GC floor. Only the writer to
whom a chunk was assigned can abandon it. The chunk in the URL of a CREATE, which may be sent again, is assigned to
the first body that arrives (`datanode/gateway/one_time_chunks.py`). A chunk that is or was published cannot be
abandoned, and a file that names an abandoned chunk is refused. If the coordinator refuses a completion for good,
it abandons the writer's chunks.

This state is soft and bounded. Chunks that are forgotten here, or were assigned before a restart or a restore from
a backup, cannot be abandoned. They are deleted when they are below the GC floor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Final

from peacefs.protocol.errors import BadRequest
from peacefs.protocol.ids import ChunkId, show

# The number of assigned and of abandoned chunks that the coordinator remembers.
assigned_chunks_max: Final = 50_000
abandoned_chunks_max: Final = 50_000


class ChunkAssignments:
    """Chunks assigned to writers, by the writer's name, and abandoned chunks; `in` tests for the latter."""

    def __init__(self) -> None:
        self._writers: dict[ChunkId, str] = {}
        self._of_writer: dict[str, set[ChunkId]] = {}
        #: The number of completions under way that name each chunk.
        self._publishing: dict[ChunkId, int] = {}
        #: In the order in which they were abandoned.
        self._abandoned: dict[ChunkId, None] = {}

    def __contains__(self, chunk: ChunkId) -> bool:
        return chunk in self._abandoned

    def __len__(self) -> int:
        return len(self._abandoned)

    def assign(self, chunk: ChunkId, writer: str) -> None:
        """Assign a chunk to `writer`; only that writer may abandon it."""
        self._writers[chunk] = writer
        self._of_writer.setdefault(writer, set()).add(chunk)
        if len(self._writers) > assigned_chunks_max:
            self._forget(next(iter(self._writers)))

    def chunks_of(self, writer: str) -> list[ChunkId]:
        """Return the chunks of a writer that it has neither published nor abandoned."""
        return sorted(self._of_writer.get(writer, ()))

    def abandon(self, chunk: ChunkId, writer: str) -> bool:
        """Abandon a chunk. Return False if it is not assigned to `writer` or is being published."""
        if self._writers.get(chunk) != writer or chunk in self._publishing:
            return False
        self._forget(chunk)
        self._abandoned[chunk] = None
        if len(self._abandoned) > abandoned_chunks_max:
            del self._abandoned[next(iter(self._abandoned))]
        return True

    @contextmanager
    def publishing(self, chunks: Sequence[ChunkId]) -> Iterator[None]:
        """Keep the chunks from being abandoned during this context. Raises BadRequest if one was abandoned."""
        for chunk in chunks:
            if chunk in self._abandoned:
                raise BadRequest(f"chunk {show(chunk)} was abandoned by its writer; write its data again")
        for chunk in chunks:
            self._publishing[chunk] = self._publishing.get(chunk, 0) + 1
        try:
            yield
        finally:
            for chunk in chunks:
                left = self._publishing.pop(chunk) - 1
                if left:
                    self._publishing[chunk] = left

    def published(self, chunk: ChunkId) -> None:
        """Note that a chunk is part of a file, and so cannot be abandoned any more."""
        self._forget(chunk)

    def _forget(self, chunk: ChunkId) -> None:
        writer = self._writers.pop(chunk, None)
        if writer is None:
            return
        of_writer = self._of_writer[writer]
        of_writer.discard(chunk)
        if not of_writer:
            del self._of_writer[writer]


_SLACK = 1000


class WriteStreams:
    """Chunks that their writers may write. Only the datanodes know whether a chunk is actually being written."""

    def __init__(self) -> None:
        self._chunks: set[ChunkId] = set()
        #: In order of time, because all tokens live equally long. Includes streams that have ended since.
        self._deadlines: deque[tuple[float, ChunkId]] = deque()

    def open(self, chunk: ChunkId, deadline_s: float) -> None:
        self._chunks.add(chunk)
        self._deadlines.append((deadline_s, chunk))
        if len(self._deadlines) > 2 * len(self._chunks) + _SLACK:
            self._deadlines = deque(entry for entry in self._deadlines if entry[1] in self._chunks)

    def close(self, chunk: ChunkId) -> None:
        """Close a stream. Does nothing if it has ended already."""
        self._chunks.discard(chunk)

    def close_overdue(self, now_s: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now_s:
            self.close(self._deadlines.popleft()[1])

    @property
    def chunks(self) -> Set[ChunkId]:
        return self._chunks
