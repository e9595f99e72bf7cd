"""Writes a file in parts and publishes each part by itself, for `hflush` and for the end of every file.

From the first flush, the writer holds the file's lease. Small parts are rewritten together with those that follow,
so that many flushes make few chunks: see `FlushedTail`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from peacefs.protocol.ids import ChunkId, new_request_id
from peacefs.protocol.limits import MIB
from peacefs.protocol.limits import hop_timeout_s as default_hop_timeout_s
from peacefs.protocol.messages import (
    Allocated,
    Completed,
    CompleteFile,
    Done,
    Flushed,
    FlushFile,
    RenewLease,
    WrittenChunk,
)
from peacefs.runtime import effects as fx

from .byte_stream import ByteStream
from .file_appender import abandon
from .file_writer import Written, write_chunks
from .lease_renewal import LeaseRenewal
from .write_grants import GrantClient

# Length from which flushed pieces are no longer rewritten with the bytes that follow.
flush_merge_bytes_max: Final = 4 * MIB


class FileFlusher:
    """Writes and publishes the parts of one file. Belongs to one writer; used by `FileSink` and the gateway.

    Calls must not overlap, except `publish_name`. After an error only `abandon` may be called, or a flush that
    repeats an unanswered one. Short parts are given to `flush` or `complete`; a long part is streamed by `write`
    first. Raises the errors of `write_file`, LeaseExpired if another writer took the file, FileNotFound if it was
    deleted.
    """

    def __init__(
        self,
        token: str,
        allocated: Allocated | None,
        chunk_bytes: int,
        holder: str,
        grant_client: GrantClient,
        *,
        has_lease: bool = False,
        hop_timeout_s: float = default_hop_timeout_s,
        merge_bytes: int = flush_merge_bytes_max,
    ) -> None:
        self._token = token
        self._allocated = allocated
        self._chunk_bytes = chunk_bytes
        self.holder = holder
        self._grant_client = grant_client
        #: True if large chunks wait for a grant. Otherwise they use the pipelines that CREATE placed.
        self.needs_grants = True
        self._hop_timeout_s = hop_timeout_s
        self._tail = FlushedTail(min(merge_bytes, chunk_bytes))
        self._long_part: Written | None = None
        #: The chunks of the last written part, until it is published.
        self._chunks: list[ChunkId] = []
        #: A flush that was not answered, and its bytes; None for the bytes of a long part.
        self._unanswered: tuple[FlushFile, bytes | None] | None = None
        self.has_lease = has_lease
        #: The lowest number of replicas of any written chunk; None before the first chunk.
        self.fewest_replicas: int | None = None

    @property
    def is_unanswered(self) -> bool:
        """True if the bytes of a flush were written but the call failed. The next flush repeats the call."""
        return self._unanswered is not None

    @property
    def tail_bytes(self) -> int:
        """Number of flushed bytes that are kept, to be rewritten together with what follows."""
        return self._tail.held_bytes

    def forget_tail(self) -> None:
        """Stop rewriting flushed bytes. Later bytes get their own chunks."""
        self._tail.forget()

    def publish_name(self) -> fx.Steps[None]:
        """Make a new file visible while it is empty. May be called during `write`.

        Raises FileAlreadyExists, without a change, if the name was taken meanwhile.
        """
        wanted = FlushFile(self._token, [], self.holder, new_request_id(), unless_there=True)
        flushed = yield from fx.call(wanted, Flushed)
        self._token, self._allocated, self.has_lease = flushed.token, flushed.allocated, True

    def renew(self, timeout_s: float) -> fx.Steps[None]:
        """Renew the lease. Raises LeaseExpired."""
        yield from fx.call(RenewLease(self._token), Done, timeout_s=timeout_s)

    def write(self, source: ByteStream) -> fx.Steps[None]:
        """Write a long part, until the stream ends. The next `flush` or `complete` publishes it."""
        self._long_part = yield from self._write(source)

    def flush(self, part: bytes) -> fx.Steps[None]:
        """Publish `part`, or the long part that was written.

        After a temporary error, another `flush` or `complete` first repeats the failed call.
        """
        yield from self.repeat()
        written, replaced, data = yield from self._write_part(part)
        wanted = FlushFile(self._token, written.chunks, self.holder, new_request_id(), replaced)
        self._unanswered, self._long_part = (wanted, data), None
        yield from self.repeat()

    def repeat(self) -> fx.Steps[None]:
        """Repeat an unanswered flush. Does nothing if there is none."""
        if self._unanswered is None:
            return
        wanted, data = self._unanswered
        flushed = yield from fx.call(wanted, Flushed)
        if data is None:
            self._tail.forget()
        else:
            self._tail.flushed(wanted.chunks, data)
        self._token, self._allocated = flushed.token, flushed.allocated
        self._unanswered, self._chunks = None, []
        self.has_lease = True

    def complete(self, part: bytes) -> fx.Steps[None]:
        """Publish the last part, as `flush` does, and close the file."""
        yield from self.repeat()
        written, replaced, _data = yield from self._write_part(part)
        yield from fx.call(CompleteFile(self._token, written.chunks, replaced), Completed)

    def write_whole(self, source: ByteStream) -> fx.Steps[None]:
        """Write and publish a whole file, if nothing was flushed before."""
        yield from self.write(source)
        yield from self.complete(b"")

    def abandon(self) -> fx.Steps[None]:
        """Abandon the unpublished rest, and the lease. What was published stays. Raises nothing."""
        if self.has_lease:
            yield from abandon(self._token)
        else:
            yield from self._grant_client.abandon(self._token, self._chunks)

    def _write_part(self, part: bytes) -> fx.Steps[tuple[Written, list[ChunkId], bytes | None]]:
        """Return the new chunks, the chunks that they replace, and the bytes (None for a long part)."""
        if self._long_part is not None:
            assert not part, "the part was given to `write`"
            return self._long_part, [], None
        replaced, data = self._tail.take_in(part)
        return (yield from self._write(ByteStream.of(data))), replaced, data

    def _write(self, source: ByteStream) -> fx.Steps[Written]:
        written = yield from write_chunks(
            self._token,
            self._allocated,
            source,
            chunk_bytes=self._chunk_bytes,
            grant_client=self._grant_client,
            needs_grants=self.needs_grants,
            hop_timeout_s=self._hop_timeout_s,
            renewal=LeaseRenewal(self._token) if self.has_lease else None,
        )
        self._chunks = [chunk.chunk for chunk in written.chunks]
        for chunk in written.chunks:
            self.fewest_replicas = min(self.fewest_replicas or len(chunk.receipts), len(chunk.receipts))
        return written


class _Piece(NamedTuple):
    chunk: ChunkId
    data: bytes


class FlushedTail:
    """The last pieces that one writer flushed, with their bytes: less than twice `merge_bytes`. Pure.

    A flush makes one chunk of the bytes since the last flush. It absorbs the previous piece as long as that piece
    is at most twice as long as the bytes so far. Each remaining piece is therefore more than twice as long as the
    next, so there are at most log2(merge_bytes) + 1 pieces. A rewritten byte becomes part of a piece at least 1.5
    times as long, so it is written at most log1.5(merge_bytes) + 2 times. A piece of `merge_bytes` has absorbed
    all pieces before it, and is not rewritten again. So only chunks of the tail are shorter.
    """

    def __init__(self, merge_bytes: int) -> None:
        self._merge_bytes = merge_bytes
        self._pieces: list[_Piece] = []

    def __bool__(self) -> bool:
        return bool(self._pieces)

    @property
    def held_bytes(self) -> int:
        """Number of bytes that are kept."""
        return sum(len(piece.data) for piece in self._pieces)

    def take_in(self, fresh: bytes) -> tuple[list[ChunkId], bytes]:
        """Return the chunks that a flush of `fresh` replaces, in order, and all the bytes that it must write."""
        length, taken = len(fresh), []
        while self._pieces and len(self._pieces[-1].data) <= 2 * length:
            taken.append(self._pieces.pop())
            length += len(taken[-1].data)
        taken.reverse()
        return [piece.chunk for piece in taken], b"".join([*(piece.data for piece in taken), fresh])

    def flushed(self, chunks: Sequence[WrittenChunk], data: bytes) -> None:
        """Record that these chunks, with these bytes, are now the end of the file."""
        if not chunks:
            return
        if len(chunks) > 1 or len(data) >= self._merge_bytes:
            self.forget()
        else:
            self._pieces.append(_Piece(chunks[0].chunk, data))

    def forget(self) -> None:
        """Stop rewriting what has been flushed."""
        self._pieces.clear()
