"""Write a file in parts, each of which is published by itself: what `hflush` promises, and the end of every file.

From the first flush on the writer has the file's lease. Small parts are written anew with those that follow, so
that many flushes make few chunks: see `FlushedTail`.
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

# A writer that flushes writes its last pieces anew with what follows, until they are together so long.
flush_merge_bytes_max: Final = 4 * MIB


class FileFlusher:
    """Belongs to one writer, which does one thing after the other; after an error it does no more than `abandon`.

    A part is either the bytes given to `flush` or `complete`, or, when it is long, the stream given to `write`
    before. Errors are those of `write_file`, and LeaseExpired and FileNotFound for a file that was taken over or
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
        self._hop_timeout_s = hop_timeout_s
        self._tail = FlushedTail(min(merge_bytes, chunk_bytes))
        self._long_part: Written | None = None
        #: The chunks of the part that was written last and is not published.
        self._chunks: list[ChunkId] = []
        #: A flush whose answer has not come, and its bytes unless it was a long part.
        self._unanswered: tuple[FlushFile, bytes | None] | None = None
        self.has_lease = has_lease
        #: The least among the chunks that were written; None before the first.
        self.fewest_replicas: int | None = None

    @property
    def is_unanswered(self) -> bool:
        """Return whether a flush failed after its bytes were written: another one asks for it once more."""
        return self._unanswered is not None

    @property
    def tail_bytes(self) -> int:
        """Return how many bytes that were flushed are kept, to be written anew with what follows."""
        return self._tail.held_bytes

    def forget_tail(self) -> None:
        """Keep none of them: what follows becomes chunks of its own."""
        self._tail.forget()

    def publish_name(self) -> fx.Steps[None]:
        """Have a new file appear, empty as yet; also while `write` is under way.

        Raises FileAlreadyExists when there is another by now; nothing has changed then.
        """
        wanted = FlushFile(self._token, [], self.holder, new_request_id(), unless_there=True)
        flushed = yield from fx.call(wanted, Flushed)
        self._token, self._allocated, self.has_lease = flushed.token, flushed.allocated, True

    def renew(self, timeout_s: float) -> fx.Steps[None]:
        """Say that the writer is there. Raises LeaseExpired."""
        yield from fx.call(RenewLease(self._token), Done, timeout_s=timeout_s)

    def write(self, source: ByteStream) -> fx.Steps[None]:
        """A long part, until the stream ends; to be published by what comes next."""
        self._long_part = yield from self._write(source)

    def flush(self, part: bytes) -> fx.Steps[None]:
        """Publishes a part, or (with no bytes) the one that was written.

        After an error that may pass another flush or `complete` asks for the same once more, and then goes on.
        """
        yield from self._ask_again()
        written, replaced, data = yield from self._write_part(part)
        wanted = FlushFile(self._token, written.chunks, self.holder, new_request_id(), replaced)
        self._unanswered, self._long_part = (wanted, data), None
        yield from self._ask_again()

    def _ask_again(self) -> fx.Steps[None]:
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
        """The same, and the file is finished."""
        yield from self._ask_again()
        written, replaced, _data = yield from self._write_part(part)
        yield from fx.call(CompleteFile(self._token, written.chunks, replaced), Completed)

    def write_whole(self, source: ByteStream) -> fx.Steps[None]:
        """A file that nothing was flushed of: all that the stream brings."""
        yield from self.write(source)
        yield from self.complete(b"")

    def abandon(self) -> fx.Steps[None]:
        """Abandon the rest; what was published stays, and others may extend it. Raises nothing."""
        if self.has_lease:
            yield from abandon(self._token)
        else:
            yield from self._grant_client.abandon(self._token, self._chunks)

    def _write_part(self, part: bytes) -> fx.Steps[tuple[Written, list[ChunkId], bytes | None]]:
        """The chunks, those that they replace, and their bytes unless they were a long part."""
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
    """The last pieces that one writer has flushed, with their bytes: less than twice `merge_bytes`. Pure.

    A flush makes a chunk of what was written since the last one. It takes in the piece before while that is at
    most twice as long as what it has so far, so that of the pieces that stay each is more than twice as long as
    the next: there are at most log2(merge_bytes) + 1. A byte that is written anew becomes part of something at
    least half as long again, so it is written log1.5(merge_bytes) + 2 times at most. A piece of `merge_bytes`,
    which has taken in all before it, is let alone from then on: of the rest of the file each chunk is at least so
    long.
    """

    def __init__(self, merge_bytes: int) -> None:
        self._merge_bytes = merge_bytes
        self._pieces: list[_Piece] = []

    def __bool__(self) -> bool:
        return bool(self._pieces)

    @property
    def held_bytes(self) -> int:
        """Return how many bytes are kept."""
        return sum(len(piece.data) for piece in self._pieces)

    def take_in(self, fresh: bytes) -> tuple[list[ChunkId], bytes]:
        """The pieces that a flush of `fresh` replaces, in order, and all the bytes that it is to write."""
        length, taken = len(fresh), []
        while self._pieces and len(self._pieces[-1].data) <= 2 * length:
            taken.append(self._pieces.pop())
            length += len(taken[-1].data)
        taken.reverse()
        return [piece.chunk for piece in taken], b"".join([*(piece.data for piece in taken), fresh])

    def flushed(self, chunks: Sequence[WrittenChunk], data: bytes) -> None:
        """These chunks, with these bytes, are the end of the file now."""
        if not chunks:
            return
        if len(chunks) > 1 or len(data) >= self._merge_bytes:
            self.forget()
        else:
            self._pieces.append(_Piece(chunks[0].chunk, data))

    def forget(self) -> None:
        """Let what has been flushed alone."""
        self._pieces.clear()
