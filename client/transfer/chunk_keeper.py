"""A writer says now and then that it holds what it has written for no file yet, so that none of it is garbage.

What is published within the first interval, as most files are, costs no call. Thread-safe: several participants
may write for one keeper, and one of them speaks for all.
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
    """The chunks of one writer that are part of no file yet; with the lease of its file, if it has one."""

    def __init__(self, token: str, renewal: LeaseRenewal | None = None) -> None:
        self._token = token
        self._renewal = renewal
        self._lock = threading.Lock()
        self._held: dict[ChunkId, None] = {}
        self._due_s: float | None = None

    def hold(self, chunk: ChunkId) -> None:
        """From now on the chunk is kept."""
        with self._lock:
            self._held[chunk] = None

    def let_go(self, chunk: ChunkId) -> None:
        """It will not be part of the file."""
        with self._lock:
            self._held.pop(chunk, None)

    def keep(self, timeout_s: float) -> fx.Steps[None]:
        """To be called again and again while the writer lives; a coordinator that is away is told later.

        Raises AccessDenied when it has heard nothing for so long that chunks were given to garbage, LeaseExpired.
        """
        if self._renewal is not None:
            yield from self._renewal.keep(timeout_s)
        now_s = yield from fx.now()
        with self._lock:
            if self._due_s is None:
                self._due_s = now_s + keep_chunks_interval_s
            if now_s < self._due_s:
                return
            # Nobody else begins meanwhile, and a failure is followed by a pause.
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
        """Keeps all while the source has nothing to give. Raises what `keep` does, or that it is silent."""
        for _ in range(int(source_silence_s / lease_renewal_s)):
            yield from self.keep(lease_renewal_s)
            if (yield from source.readable(timeout_s=lease_renewal_s)):
                return
        raise source.silent()


class KeptPackets:
    """The packets of a chunk; who sends them keeps what its writer holds. See `chunk_buffer.ResendableSource`."""

    def __init__(self, source: ResendableSource, keeper: ChunkKeeper) -> None:
        self._source = source
        self._keeper = keeper

    def packet(self, index: int, *, wait_s: float) -> fx.Steps[OutgoingPacket | None]:
        yield from self._keeper.keep(wait_s)
        return (yield from self._source.packet(index, wait_s=wait_s))

    def failed_at_source(self) -> bool:
        return self._source.failed_at_source()
