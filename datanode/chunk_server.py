"""Answers reads: the verified blocks of one replica, as packets."""

from __future__ import annotations

from peacefs.protocol import effects as fx
from peacefs.protocol.errors import AccessDenied, BadRequest, ChecksumMismatch, ChunkNotFound
from peacefs.protocol.ids import show
from peacefs.protocol.limits import hop_timeout_s as default_hop_timeout_s
from peacefs.protocol.messages import Packet, ReadChunk
from peacefs.protocol.tokens import ChunkRead, Seal

from .changes import Changes
from .chunk_store import ChunkStore


class ChunkServer:
    """Sends chunks; one instance serves all connections of a datanode."""

    def __init__(
        self, seal: Seal, store: ChunkStore, changes: Changes, *, hop_timeout_s: float = default_hop_timeout_s
    ) -> None:
        self._seal = seal
        self._store = store
        self._changes = changes
        self._hop_timeout_s = hop_timeout_s

    def send_chunk(self, reader: fx.Connection, request: ReadChunk) -> fx.Steps[None]:
        """Answers one request; an error ends the answer, before the first packet or after any other.

        Raises AccessDenied, BadRequest, ChunkNotFound, or ChecksumMismatch, upon which the coordinator is told
        with the next heartbeat.
        """
        token = self._seal.open(request.token, ChunkRead, (yield from fx.wall_clock()))
        if token.chunk != request.chunk:
            raise AccessDenied("the token is for another chunk")
        replica = self._store.find(request.chunk)
        if replica is None or replica.version != request.version:
            raise ChunkNotFound(f"there is no chunk {show(request.chunk)} version {show(request.version)} here")
        end = min(request.offset + request.length, replica.length)
        if not 0 <= request.offset < end:
            raise BadRequest(f"bytes {request.offset} to {end} of a chunk of {replica.length}")
        try:
            yield from self._send_range(reader, request, end)
        except ChecksumMismatch:
            self._changes.corrupt(replica)
            raise

    def _send_range(self, reader: fx.Connection, request: ReadChunk, end: int) -> fx.Steps[None]:
        plan = yield from self._store.open_read(
            request.chunk, request.version, request.offset, end - request.offset
        )
        while (blocks := (yield from self._store.read_blocks(plan))) is not None:
            offset, sums, data = blocks
            packet = Packet(offset, sums, last=offset + len(data) >= end)
            yield from fx.send(reader, packet, data, timeout_s=self._hop_timeout_s)
