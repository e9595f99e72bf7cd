"""Reports a writer's unpublished chunks to the coordinator regularly, so that they do not become garbage.

Most files are published within the first interval, and need no such call. Thread-safe: several participants may
share one keeper, and one of them makes the call for all.
"""

from __future__ import annotations

import threading
from typing import Final

from peacefs.protocol.errors import PeerError, ServiceUnready
from peacefs.protocol.ids import ChunkId
from peacefs.protocol.limits import keep_chunks_interval_s, kept_chunks_per_call, lease_renewal_s, source_silence_s
from peacefs.protocol.messages import Done, KeepChunks
from peacefs.runtime import effects as fx

from .byte_stream import ByteStream
from .chunk_buffer import OutgoingPacket, ResendableSource
from .lease_renewal import LeaseRenewal

keep_chunks_retry_s: Final = 5.0


class ChunkKeeper:
    """The unpublished chunks of one writer. Also renews the lease of the file, if it has one."""

    def __init__(self, token: str, renewal: LeaseRenewal | None = None) -> None:
        self._token = token
        self._renewal = renewal
        self._lock = threading.Lock()
        self._held: dict[ChunkId, None] = {}
        self._due_s: float | None = None

    def hold(self, chunk: ChunkId) -> None:
        with self._lock:
            self._held[chunk] = None

    def let_go(self, chunk: ChunkId) -> None:
        """Stop keeping a chunk, which will not be part of the file."""
        with self._lock:
            self._held.pop(chunk, None)

    def keep(self, timeout_s: float) -> fx.Steps[None]:
        """Report the chunks if it is time. Call this often. Retries later if the coordinator is unreachable.

        Raises LeaseExpired, and AccessDenied if the calls failed for so long that chunks became garbage.
        """
        if self._renewal is not None:
            yield from self._renewal.keep(timeout_s)
        now_s = yield from fx.now()
        with self._lock:
            if self._due_s is None:
                self._due_s = now_s + keep_chunks_interval_s
            if now_s < self._due_s:
                return
            # No other participant starts a call meanwhile; after a failure there is a pause.
            self._due_s = now_s + timeout_s + keep_chunks_retry_s
            held = list(self._held)
        try:
            for at in range(0, len(held), kept_chunks_per_call):
                message = KeepChunks(self._token, held[at : at + kept_chunks_per_call])
                yield from fx.call(message, Done, timeout_s=timeout_s)
        except (PeerError, ServiceUnready):
            return
        with self._lock:
            self._due_s = now_s + keep_chunks_interval_s

    def until_readable(self, source: ByteStream) -> fx.Steps[None]:
        """Keep the chunks until the source has bytes. Raises what `keep` does, and PeerTimeout after a silence."""
        for _ in range(int(source_silence_s / lease_renewal_s)):
            yield from self.keep(lease_renewal_s)
            if (yield from source.readable(timeout_s=lease_renewal_s)):
                return
        raise source.silent()


class KeptPackets:
    """The packets of a chunk. Reading one also calls the keeper. See `chunk_buffer.ResendableSource`."""

    def __init__(self, source: ResendableSource, keeper: ChunkKeeper) -> None:
        self._source = source
        self._keeper = keeper

    def packet(self, index: int, *, wait_s: float) -> fx.Steps[OutgoingPacket | None]:
        yield from self._keeper.keep(wait_s)
        return (yield from self._source.packet(index, wait_s=wait_s))

    def failed_at_source(self) -> bool:
        return self._source.failed_at_source()
