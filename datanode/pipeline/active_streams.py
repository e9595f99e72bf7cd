"""Tracks which granted chunks are being received here. Every pipeline thread updates it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import Final

from peacefs.protocol.errors import GrantLapsed, PeacefsError
from peacefs.protocol.ids import ChunkId, NodeId, epoch_of
from peacefs.protocol.messages import (
    AskStreams,
    Done,
    StreamEnded,
    StreamProgress,
    StreamsFound,
    StreamUnderWay,
    WriteChunk,
)
from peacefs.protocol.tokens import ChunkWrite
from peacefs.runtime import effects as fx

# Time limit for reporting the end of a granted chunk. If the report is lost, the coordinator asks.
stream_end_timeout_s: Final = 2.0


class ActiveStream:
    """One chunk that is being received; its pipeline thread updates it. Times are seconds of any one clock."""

    def __init__(self, token: ChunkWrite, begun_s: float) -> None:
        self.token = token
        self.received = 0
        self._begun_s = begun_s
        self._waited_s = 0.0
        self._waits_since_s: float | None = None

    def waits(self, now_s: float) -> None:
        """Record that the stream waits for its writer."""
        self._waits_since_s = now_s

    def receives(self, now_s: float, received: int) -> None:
        """Record the total number of bytes received, which may be unchanged."""
        self._waited_s, self._waits_since_s = self._waited(now_s), None
        self.received = received

    def progress(self, now_s: float) -> StreamProgress:
        return StreamProgress(self.token.chunk, self.received, self._waited(now_s), self._begun_s, now_s)

    def _waited(self, now_s: float) -> float:
        since_s = self._waits_since_s
        return self._waited_s + (now_s - since_s if since_s is not None else 0.0)


class StreamsUnderWay:
    """The chunks being received, from the check of their token until they succeed or fail. Thread-safe."""

    def __init__(self, node: NodeId) -> None:
        self.node = node
        self._lock = threading.Lock()
        self._streams: dict[ChunkId, list[ActiveStream]] = {}
        self._epoch = 0

    def registered(self, epoch: int) -> None:
        """Record the epoch of the coordinator that has been told which streams begin here."""
        with self._lock:
            self._epoch = epoch

    def begin(self, token: ChunkWrite, now_s: float) -> ActiveStream:
        """Record that a chunk is being received. A retry is recorded in addition to an attempt that has not ended.

        If the pipeline begins here, raises GrantLapsed for a grant of an earlier epoch. The new coordinator does
        not know that stream, and may have given its place to others.
        """
        with self._lock:
            if token.nodes[0] == self.node and epoch_of(token.chunk) < self._epoch:
                raise GrantLapsed("the coordinator that granted this chunk is gone; ask for it again")
            stream = ActiveStream(token, now_s)
            self._streams.setdefault(token.chunk, []).append(stream)
            return stream

    def end(self, stream: ActiveStream) -> None:
        with self._lock:
            chunk = stream.token.chunk
            self._streams[chunk].remove(stream)
            if not self._streams[chunk]:
                del self._streams[chunk]

    def headed_here(self) -> Sequence[StreamUnderWay]:
        """Return the streams whose pipelines begin here."""
        with self._lock:
            tokens = [streams[-1].token for streams in self._streams.values()]
        return [
            StreamUnderWay(token.chunk, token.version, token.nodes)
            for token in tokens
            if token.nodes[0] == self.node
        ]

    def find(self, question: AskStreams, now_s: float) -> StreamsFound:
        """Return which of these chunks are being received here, and their progress."""
        with self._lock:
            there = [streams[-1] for chunk in question.chunks if (streams := self._streams.get(chunk))]
        return StreamsFound(question.chunks, [stream.progress(now_s) for stream in there])


def report_end(opening: WriteChunk, length: int | None) -> fx.Steps[None]:
    """Report the end of a granted chunk to the coordinator; `length` is None if the chunk was abandoned.

    Errors are ignored: if the report is lost, the coordinator asks.
    """
    ended = StreamEnded(opening.chunk, opening.version, length is not None, length or 0)
    with contextlib.suppress(PeacefsError):
        yield from fx.call(ended, Done, timeout_s=stream_end_timeout_s)
