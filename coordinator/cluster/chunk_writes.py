"""Chunks that are being written, and chunks that their writer has abandoned. Pure.

A write stream ends when its file is published, when its writer abandons it, or when its token has expired.

A replica of an abandoned chunk is garbage at once, and not only below the floor. Only the writer to whom a chunk
was assigned can abandon it; one that comes in the URL of a CREATE, which may be sent again, is assigned to the
first body that comes (`datanode/gateway/one_time_chunks.py`). A chunk that is being published, or was, cannot be
abandoned; a file that names an abandoned one is refused. The coordinator abandons a writer's chunks when it
refuses the writer's completion for good.

All this is soft and bounded: what is forgotten here, or was said to an earlier coordinator, goes by the floor.
After a restore from a backup it is the same: the coordinator knows neither what writers have abandoned since nor
what they published, and nobody can abandon a chunk that another coordinator assigned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Final

from peacefs.protocol.errors import BadRequest
from peacefs.protocol.ids import ChunkId, show

# Chunks of which the coordinator remembers who alone may write them, and those that were abandoned.
assigned_chunks_max: Final = 50_000
abandoned_chunks_max: Final = 50_000


class ChunkAssignments:
    """Assignments of chunks to writers, and those that were abandoned. A writer has a name of its own."""

    def __init__(self) -> None:
        self._writers: dict[ChunkId, str] = {}
        self._of_writer: dict[str, set[ChunkId]] = {}
        #: In how many completions under way.
        self._publishing: dict[ChunkId, int] = {}
        #: Longest ago first.
        self._abandoned: dict[ChunkId, None] = {}

    def __contains__(self, chunk: ChunkId) -> bool:
        return chunk in self._abandoned

    def __len__(self) -> int:
        return len(self._abandoned)

    def assign(self, chunk: ChunkId, writer: str) -> None:
        """Assign a chunk to `writer`, who alone may write it."""
        self._writers[chunk] = writer
        self._of_writer.setdefault(writer, set()).add(chunk)
        if len(self._writers) > assigned_chunks_max:
            self._forget(next(iter(self._writers)))

    def chunks_of(self, writer: str) -> list[ChunkId]:
        """Return the chunks of a writer that it has neither published nor abandoned."""
        return sorted(self._of_writer.get(writer, ()))

    def abandon(self, chunk: ChunkId, writer: str) -> bool:
        """Abandon a chunk; return whether its writer may."""
        if self._writers.get(chunk) != writer or chunk in self._publishing:
            return False
        self._forget(chunk)
        self._abandoned[chunk] = None
        if len(self._abandoned) > abandoned_chunks_max:
            del self._abandoned[next(iter(self._abandoned))]
        return True

    @contextmanager
    def publishing(self, chunks: Sequence[ChunkId]) -> Iterator[None]:
        """While this lasts none of the chunks can be abandoned. Raises BadRequest if one was."""
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
        """Take note that a chunk is part of a file: nobody can abandon it any more."""
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
    """Chunks that their writers may write. Whether one is being written only its datanodes know."""

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
        """Close a stream; one that has ended already is passed over."""
        self._chunks.discard(chunk)

    def close_overdue(self, now_s: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now_s:
            self.close(self._deadlines.popleft()[1])

    @property
    def chunks(self) -> Set[ChunkId]:
        return self._chunks
