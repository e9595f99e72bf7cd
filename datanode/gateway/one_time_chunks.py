"""The chunks that come in the URLs of CREATEs: each is written by one body at most, and only through this gateway.

Whoever has a URL may send to it again: a client that heard no answer, a proxy, the curious. What is written for a
body that fails goes at once by its writer's word, so no two bodies may be written to one chunk. The coordinator
therefore gives such a chunk to one process of the datanode that the URL leads to, which signs the token to write
it for the first body that comes; any other is written to a chunk that is asked for. Thread-safe.
"""

from __future__ import annotations

import threading
from typing import Final

from peacefs.protocol.ids import ChunkId
from peacefs.protocol.messages import Allocated
from peacefs.protocol.tokens import ChunkWrite, OneTimeChunk, Signer

# A gateway remembers so many chunks of redirect URLs as used; older ones count as used.
one_time_chunks_remembered_max: Final = 50_000


class OneTimeChunks:
    """Track the one-time chunks of one process of a datanode, by the name that it registers with."""

    def __init__(
        self, signer: Signer, process: str, *, remembered_max: int = one_time_chunks_remembered_max
    ) -> None:
        self._signer = signer
        self._process = process
        self._remembered_max = remembered_max
        self._lock = threading.Lock()
        self._taken: dict[ChunkId, None] = {}
        #: As good as taken are all up to this one: it was forgotten.
        self._forgotten: ChunkId = 0

    def take(self, first: str) -> Allocated | None:
        """Return the chunk with a token to write it; None if this process may not write it, or no longer.

        Raises AccessDenied for what the coordinator has not signed.
        """
        given = self._signer.verify_even_late(first, OneTimeChunk)
        if given.process != self._process or not self._is_fresh(given.chunk):
            return None
        write_token = ChunkWrite(given.expires_s, given.chunk, given.version, given.pipeline)
        return Allocated(given.chunk, given.version, given.pipeline, self._signer.sign(write_token))

    def _is_fresh(self, chunk: ChunkId) -> bool:
        """Once true; then never again."""
        with self._lock:
            if chunk <= self._forgotten or chunk in self._taken:
                return False
            self._taken[chunk] = None
            if len(self._taken) > self._remembered_max:
                oldest = next(iter(self._taken))
                del self._taken[oldest]
                self._forgotten = max(self._forgotten, oldest)
            return True
