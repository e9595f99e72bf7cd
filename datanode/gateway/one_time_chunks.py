"""Assigns the chunk in the URL of a CREATE to the first body only. Only this gateway can write to the chunk.

Anyone with the URL may send to it again: a client that got no answer, a proxy, an attacker. If a body fails, its
writer has the chunk deleted at once, so two bodies must never share a chunk. The coordinator therefore assigns
such a chunk to one process of one datanode. That process signs the token to write it for the first body; for any
other body, a new chunk is requested. Thread-safe.
"""

from __future__ import annotations

import threading
from typing import Final

from peacefs.protocol.ids import ChunkId
from peacefs.protocol.messages import Allocated
from peacefs.protocol.tokens import ChunkWrite, OneTimeChunk, Signer

# Number of used chunks that a gateway remembers. Chunks older than those count as used.
one_time_chunks_remembered_max: Final = 50_000


class OneTimeChunks:
    """The one-time chunks of one process of a datanode, identified by the name that it registers with."""

    def __init__(
        self, signer: Signer, process: str, *, remembered_max: int = one_time_chunks_remembered_max
    ) -> None:
        self._signer = signer
        self._process = process
        self._remembered_max = remembered_max
        self._lock = threading.Lock()
        self._taken: dict[ChunkId, None] = {}
        #: All chunks up to this one count as used, because they may have been forgotten.
        self._forgotten: ChunkId = 0

    def take(self, first: str) -> Allocated | None:
        """Return the chunk with a token to write it; None if it was used, or belongs to another process.

        Raises AccessDenied if the coordinator did not sign it.
        """
        given = self._signer.verify_even_late(first, OneTimeChunk)
        if given.process != self._process or not self._is_fresh(given.chunk):
            return None
        write_token = ChunkWrite(given.expires_s, given.chunk, given.version, given.pipeline)
        return Allocated(given.chunk, given.version, given.pipeline, self._signer.sign(write_token))

    def _is_fresh(self, chunk: ChunkId) -> bool:
        """Return True at the first call for a chunk, and False afterwards."""
        with self._lock:
            if chunk <= self._forgotten or chunk in self._taken:
                return False
            self._taken[chunk] = None
            if len(self._taken) > self._remembered_max:
                oldest = next(iter(self._taken))
                del self._taken[oldest]
                self._forgotten = max(self._forgotten, oldest)
            return True
