"""Track which granted chunks are being received here. Every pipeline thread writes to it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from peacefs.protocol.errors import GrantLapsed
from peacefs.protocol.ids import ChunkId, NodeId, epoch_of
from peacefs.protocol.messages import AskStreams, StreamProgress, StreamsFound, StreamUnderWay
from peacefs.protocol.tokens import ChunkWrite


class ActiveStream:
    """One that its pipeline thread keeps up to date. Times in seconds, by any one clock."""

    def __init__(self, token: ChunkWrite, begun_s: float) -> None:
        self.token = token
        self.received = 0
        self._begun_s = begun_s
        self._waited_s = 0.0
        self._waits_since_s: float | None = None

    def waits(self, now_s: float) -> None:
        """For its writer."""
        self._waits_since_s = now_s

    def receives(self, now_s: float, received: int) -> None:
        """So much has come in all, which may be no more than before."""
        self._waited_s, self._waits_since_s = self._waited(now_s), None
        self.received = received

    def progress(self, now_s: float) -> StreamProgress:
        """Return the stream's progress."""
        return StreamProgress(self.token.chunk, self.received, self._waited(now_s), self._begun_s, now_s)

    def _waited(self, now_s: float) -> float:
        since_s = self._waits_since_s
        return self._waited_s + (now_s - since_s if since_s is not None else 0.0)


class StreamsUnderWay:
    """Chunks from the moment that their token was found good to the end, whichever that is. Thread-safe."""

    def __init__(self, node: NodeId) -> None:
        self.node = node
        self._lock = threading.Lock()
        self._streams: dict[ChunkId, list[ActiveStream]] = {}
        self._epoch = 0

    def registered(self, epoch: int) -> None:
        """The coordinator that knows which streams begin here is that of this epoch."""
        with self._lock:
            self._epoch = epoch

    def begin(self, token: ChunkWrite, now_s: float) -> ActiveStream:
        """A chunk may come twice at once, when its writer has timed out on the first.

        Raises GrantLapsed, at the head, for what an earlier coordinator granted: this one has not been told of it,
        and may have given the room away.
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
        """Those whose pipelines begin here."""
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
