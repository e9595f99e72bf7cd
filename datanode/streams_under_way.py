"""Which granted chunks are being received here, for whoever asks. Every pipeline thread writes to it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from peacefs.protocol.errors import GrantLapsed
from peacefs.protocol.ids import ChunkId, NodeId, epoch_of
from peacefs.protocol.messages import AskStreams, StreamsFound, StreamUnderWay
from peacefs.protocol.tokens import ChunkWrite


class StreamsUnderWay:
    """Chunks from the moment that their token was found good to the end, whichever that is. Thread-safe."""

    def __init__(self, node: NodeId) -> None:
        self._node = node
        self._lock = threading.Lock()
        self._tokens: dict[ChunkId, list[ChunkWrite]] = {}
        self._epoch = 0

    def registered(self, epoch: int) -> None:
        """The coordinator that knows which streams begin here is that of this epoch."""
        with self._lock:
            self._epoch = epoch

    def begin(self, token: ChunkWrite) -> None:
        """A chunk may come twice at once, when its writer has lost patience with the first.

        Raises GrantLapsed, at the head, for what an earlier coordinator granted: this one has not been told of it,
        and may have given the room away.
        """
        with self._lock:
            if token.nodes[0] == self._node and epoch_of(token.chunk) < self._epoch:
                raise GrantLapsed("the coordinator that granted this chunk is gone; ask for it again")
            self._tokens.setdefault(token.chunk, []).append(token)

    def end(self, token: ChunkWrite) -> None:
        with self._lock:
            self._tokens[token.chunk].remove(token)
            if not self._tokens[token.chunk]:
                del self._tokens[token.chunk]

    def headed_here(self) -> Sequence[StreamUnderWay]:
        """Those whose pipelines begin here."""
        with self._lock:
            tokens = [tokens[-1] for tokens in self._tokens.values()]
        return [
            StreamUnderWay(token.chunk, token.version, token.nodes)
            for token in tokens
            if token.nodes[0] == self._node
        ]

    def find(self, question: AskStreams) -> StreamsFound:
        """Which of these are here."""
        with self._lock:
            return StreamsFound(question.chunks, [chunk for chunk in question.chunks if chunk in self._tokens])
