"""Chunks that will never be part of a file, by the word of the one writer who has leave to write them. Pure.

A replica of such a chunk is garbage at once, and not only below the floor. Only who was given a chunk for himself
can give it up; one that comes in the URL of a CREATE, which may be sent again, is given to the first body that
comes (`datanode/gateway/one_time_chunks.py`). A chunk that is being published, or was, is given up by nobody; a
file that names one given up is refused. A writer's chunks are given up for it when its completion is refused
for good.

Soft and bounded: what is forgotten here, or was said to the coordinator before this one, goes by the floor. So it
is after a restore from a backup: what writers gave up since then is unknown to it, as what they published is, and
nobody's word counts for a chunk that was handed out by another coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from peacefs.protocol.errors import BadRequest
from peacefs.protocol.ids import ChunkId, show
from peacefs.protocol.limits import abandoned_chunks_max, assigned_chunks_max


class ChunkAssignments:
    """Who was given which chunk, and what has been given up. A writer is known by a name of its own."""

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
        """`writer` alone has leave to write the chunk."""
        self._writers[chunk] = writer
        self._of_writer.setdefault(writer, set()).add(chunk)
        if len(self._writers) > assigned_chunks_max:
            self._forget(next(iter(self._writers)))

    def chunks_of(self, writer: str) -> list[ChunkId]:
        """What a writer was given and has neither published nor given up."""
        return sorted(self._of_writer.get(writer, ()))

    def abandon(self, chunk: ChunkId, writer: str) -> bool:
        """Whether the writer's word is enough."""
        if self._writers.get(chunk) != writer or chunk in self._publishing:
            return False
        self._forget(chunk)
        self._abandoned[chunk] = None
        if len(self._abandoned) > abandoned_chunks_max:
            del self._abandoned[next(iter(self._abandoned))]
        return True

    @contextmanager
    def publishing(self, chunks: Sequence[ChunkId]) -> Iterator[None]:
        """While it lasts none of them can be given up. Raises BadRequest if one was."""
        for chunk in chunks:
            if chunk in self._abandoned:
                raise BadRequest(f"chunk {show(chunk)} was given up by its writer; write its data again")
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
        """It is part of a file: nobody's to give up any more."""
        self._forget(chunk)

    def _forget(self, chunk: ChunkId) -> None:
        writer = self._writers.pop(chunk, None)
        if writer is None:
            return
        of_writer = self._of_writer[writer]
        of_writer.discard(chunk)
        if not of_writer:
            del self._of_writer[writer]
