"""Writes one file: cuts it into chunks, writes each through a pipeline, and publishes the file in one step."""

from __future__ import annotations

from dataclasses import dataclass

from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.limits import fast_lane_bytes_max, lease_renewal_s, source_silence_s
from peacefs.protocol.limits import hop_timeout_s as default_hop_timeout_s
from peacefs.protocol.messages import AllocateChunk, Allocated, Completed, CompleteFile, WrittenChunk
from peacefs.runtime import effects as fx

from .byte_stream import ByteStream
from .chunk_buffer import ChunkBuffer
from .chunk_keeper import ChunkKeeper, KeptPackets
from .chunk_writer import AllocateAgain, write_chunk
from .lease_renewal import LeaseRenewal
from .write_grants import GrantClient, GrantedSet


@dataclass(frozen=True)
class WriteStats:
    """Statistics of a written file. `replicas` lists the number of replicas of each chunk, in order."""

    length: int
    replicas: tuple[int, ...]
    failed_nodes: tuple[NodeId, ...]

    def short_chunks(self, replication: int) -> int:
        """Return how many chunks have fewer replicas than requested, until they are repaired."""
        return sum(replicas < replication for replicas in self.replicas)


@dataclass(frozen=True)
class Written:
    """Chunks that are on datanodes but in no file yet, and the nodes that failed during the write."""

    chunks: list[WrittenChunk]
    failed_nodes: tuple[NodeId, ...] = ()

    def stats(self) -> WriteStats:
        return WriteStats(
            sum(chunk.length for chunk in self.chunks),
            tuple(len(chunk.receipts) for chunk in self.chunks),
            self.failed_nodes,
        )


def write_file(
    token: str,
    first: Allocated | None,
    source: ByteStream,
    *,
    chunk_bytes: int,
    grant_client: GrantClient,
    hop_timeout_s: float = default_hop_timeout_s,
    renewal: LeaseRenewal | None = None,
    ahead: str = "",
) -> fx.Steps[tuple[Completed, WriteStats]]:
    """Write what `source` brings in chunks of `chunk_bytes`, and publish it under the name in `token`.

    `first` is the chunk that the coordinator placed with the token, for data that needs no grant. Every larger
    chunk waits for its grant at `grant_client`. If the source aborts, the file is not published. `ahead` is the id
    of a future request, for which the coordinator preallocates a chunk. Any error is also passed to the source, so
    that its producer does not wait for room.
    """
    written = yield from write_chunks(
        token,
        first,
        source,
        chunk_bytes=chunk_bytes,
        grant_client=grant_client,
        hop_timeout_s=hop_timeout_s,
        renewal=renewal,
    )
    try:
        completed = yield from fx.call(CompleteFile(token, written.chunks, ahead=ahead), Completed)
    except PeacefsError as error:
        source.abort(error)
        if error.retriable:
            yield from _abandon(grant_client, token, written)
        raise
    except KeyboardInterrupt:
        yield from _abandon(grant_client, token, written)
        raise
    return completed, written.stats()


def _abandon(grant_client: GrantClient, token: str, written: Written) -> fx.Steps[None]:
    """Abandon chunks after a temporary error. (If it refuses them for good, the coordinator deletes them.)"""
    yield from grant_client.abandon(token, [chunk.chunk for chunk in written.chunks])


def write_chunks(
    token: str,
    first: Allocated | None,
    source: ByteStream,
    *,
    chunk_bytes: int,
    grant_client: GrantClient,
    needs_grants: bool = True,
    hop_timeout_s: float = default_hop_timeout_s,
    renewal: LeaseRenewal | None = None,
) -> fx.Steps[Written]:
    """Do what `write_file` does, except the publication.

    Without `needs_grants`, every chunk is written like a small one, through a pipeline that was placed.
    """
    writer = _FileWriter(token, first, source, chunk_bytes, grant_client, hop_timeout_s, renewal)
    writer.needs_grants = needs_grants
    try:
        return (yield from writer.write())
    except PeacefsError as error:
        source.abort(error)
        yield from writer.abandon()
        raise
    except KeyboardInterrupt:
        yield from writer.abandon()
        raise


class _FileWriter:
    """Writes the chunks of one file in order, for `write_chunks`, which abandons them after an error.

    Each byte of the source is in one chunk. A node that failed is not used again for this file.
    """

    def __init__(
        self,
        token: str,
        first: Allocated | None,
        source: ByteStream,
        chunk_bytes: int,
        grant_client: GrantClient,
        hop_timeout_s: float,
        renewal: LeaseRenewal | None,
    ) -> None:
        self._token = token
        self._placed = first
        self._source = source
        self._chunk_bytes = chunk_bytes
        self._grant_client = grant_client
        self._hop_timeout_s = hop_timeout_s
        self._keeper = ChunkKeeper(token, renewal)
        self.needs_grants = True
        self._failed: list[NodeId] = []
        self._written = 0
        #: The chunks that `GrantedSet.give_back` does not abandon.
        self._chunks: list[ChunkId] = []

    def write(self) -> fx.Steps[Written]:
        chunks: list[WrittenChunk] = []
        # Check before each chunk, so that no chunk is allocated that would stay empty.
        while (yield from self._more()):
            chunks.append((yield from self._write_next_chunk()))
        return Written(chunks, tuple(self._failed))

    def abandon(self) -> fx.Steps[None]:
        """Abandon all chunks of the file. Raises nothing."""
        yield from self._grant_client.abandon(self._token, self._chunks)

    def _more(self) -> fx.Steps[bool]:
        yield from self._keeper.until_readable(self._source)
        return (yield from self._source.more())

    def _write_next_chunk(self) -> fx.Steps[WrittenChunk]:
        buffer = KeptPackets(ChunkBuffer(self._source, self._chunk_bytes), self._keeper)
        if self.needs_grants and (yield from self._is_large()):
            return (yield from self._write_granted(buffer))
        allocated, self._placed = self._placed, None
        if allocated is None:
            allocated = yield from self._allocate(self._failed, None)
        else:
            self._hold(allocated.chunk)
        return (yield from self._through(allocated, buffer, self._allocate))

    def _is_large(self) -> fx.Steps[bool]:
        """Return whether the source has more than the fast lane accepts; wait until this is known."""
        for _ in range(int(source_silence_s / lease_renewal_s)):
            if (yield from self._source.holds(fast_lane_bytes_max + 1, timeout_s=lease_renewal_s)):
                if self._source.error is not None:
                    raise self._source.error
                return self._source.waiting_bytes > fast_lane_bytes_max
            yield from self._keeper.keep(lease_renewal_s)
        raise self._source.silent()

    def _write_granted(self, buffer: KeptPackets) -> fx.Steps[WrittenChunk]:
        known = self._source.waiting_bytes if self._source.finished else self._chunk_bytes
        this_bytes = min(known, self._chunk_bytes)
        grants = GrantedSet(
            self._grant_client,
            self._token,
            {0: this_bytes},
            written_bytes=self._written,
            meanwhile=self._keeper.keep,
        )
        placed, self._placed = self._placed, None

        def again(failed: list[NodeId], abandoned: ChunkId | None) -> fx.Steps[Allocated]:
            if abandoned is not None:
                self._keeper.let_go(abandoned)
            replaced = [abandoned] if abandoned is not None else []
            granted = yield from grants.again(0, this_bytes, failed, replaced)
            self._keeper.hold(granted.chunk)
            return granted

        try:
            allocated = yield from again(self._failed, placed.chunk if placed is not None else None)
            written = yield from self._through(allocated, buffer, again)
        except PeacefsError:
            yield from grants.give_back()
            raise
        grants.written(0)
        self._chunks.append(written.chunk)
        return written

    def _hold(self, chunk: ChunkId) -> None:
        self._chunks.append(chunk)
        self._keeper.hold(chunk)

    def _through(self, allocated: Allocated, buffer: KeptPackets, again: AllocateAgain) -> fx.Steps[WrittenChunk]:
        written = yield from write_chunk(allocated, buffer, again, self._failed, hop_timeout_s=self._hop_timeout_s)
        self._written += written.length
        return written

    def _allocate(self, failed: list[NodeId], abandoned: ChunkId | None) -> fx.Steps[Allocated]:
        wanted = AllocateChunk(self._token, list(failed), abandoned, self._written)
        allocated = yield from fx.call(wanted, Allocated)
        if abandoned is not None:
            self._keeper.let_go(abandoned)
        self._hold(allocated.chunk)
        return allocated
