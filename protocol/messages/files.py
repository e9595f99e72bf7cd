"""Requests of writers and readers (clients or gateways) to the coordinator. See decisions 3, 8 and 13."""

from __future__ import annotations

import msgspec

from peacefs.protocol.ids import ChunkId, NodeId, Version
from peacefs.protocol.new_file import NewFile

from .base import Message, TracedMessage
from .chunks import Hop, Receipt


class CreateFile(TracedMessage, frozen=True):
    """Create a file; idempotent by the request id in `file`.

    `abandoned` is a chunk that was preallocated for this request and will not be used; `exclude` are failed nodes.
    A file with `is_empty` is published at once and answered by Completed; older coordinators answer Created.
    """

    file: NewFile
    abandoned: ChunkId | None = None
    exclude: list[NodeId] = []
    is_empty: bool = False


class AllocateChunk(TracedMessage, frozen=True):
    """Request a further chunk, or one that replaces `abandoned`, for the file of `token`; `exclude` are failed
    nodes.

    `written_bytes` is the number of bytes written before that chunk.
    """

    token: str
    exclude: list[NodeId] = []
    abandoned: ChunkId | None = None
    written_bytes: int = 0


class Allocated(Message, frozen=True):
    """A chunk to write through `pipeline` with `token`."""

    chunk: ChunkId
    version: Version
    pipeline: list[Hop]
    token: str


class Created(Message, frozen=True):
    """The answer to CreateFile: a token to write the file, its first chunk, and its block size."""

    token: str
    allocated: Allocated
    block_bytes: int = 0


class WrittenChunk(msgspec.Struct, frozen=True, array_like=True):
    """A chunk that its pipeline has acknowledged."""

    chunk: ChunkId
    version: Version
    length: int
    checksum: int
    receipts: list[Receipt]


class CompleteFile(TracedMessage, frozen=True):
    """Publish the file of `token` with these chunks, in order; with a lease's token, append them.

    When appending, they replace the file's last chunks, listed in `replaced`, whose data they contain at their
    beginning. `ahead` is as in PublishFile.
    """

    token: str
    chunks: list[WrittenChunk]
    replaced: list[ChunkId] = []
    ahead: str = ""


class PublishFile(TracedMessage, frozen=True):
    """CreateFile and CompleteFile in one, for a file with one chunk that was preallocated for this request.

    `token` is the chunk's token. `ahead` is the id of the next request, for which a chunk is preallocated now.
    """

    file: NewFile
    chunk: WrittenChunk
    token: str
    ahead: str = ""


class Completed(Message, frozen=True):
    """The file was published durably. `ahead` is the chunk for the next request, if one could be placed."""

    length: int
    ahead: Allocated | None = None


class FlushFile(TracedMessage, frozen=True):
    """Publish what was written so far, like CompleteFile, but continue writing: `holder` has the lease of the
    file.

    Idempotent by `request_id`. With `unless_there` a new file never replaces another one.
    """

    token: str
    chunks: list[WrittenChunk]
    holder: str
    request_id: str
    replaced: list[ChunkId] = []
    unless_there: bool = False


class Flushed(Message, frozen=True):
    """`length` bytes of the file are durable. The writer continues with `token` and `allocated`, if it was
    placed.
    """

    token: str
    length: int
    allocated: Allocated | None = None


class FlushUploads(TracedMessage, frozen=True):
    """Order to a gateway: flush these uploads, so that the bytes received so far become visible.

    `uploads` are request ids of CREATEs and holders of leases. The gateway waits up to `wait_s` for uploads that
    have not begun. Answered by UploadsFlushed.
    """

    uploads: list[str]
    wait_s: float
    epoch: int = 0


class UploadsFlushed(Message, frozen=True):
    """The uploads were flushed, except those in `missing`: they have not begun, have ended, or must appear
    whole.
    """

    missing: list[str]


class TakeLease(TracedMessage, frozen=True):
    """Take the lease to extend the file of `token`. Sent again by the same `holder`, it renews the lease."""

    token: str
    holder: str


class Leased(Message, frozen=True):
    """A lease: `token` permits to extend a file of `length` bytes; `allocated` is the first chunk to write."""

    token: str
    allocated: Allocated
    length: int
    block_bytes: int
    replication: int


class RenewLease(TracedMessage, frozen=True):
    token: str


class KeepChunks(TracedMessage, frozen=True):
    """Keep these chunks from garbage collection: the writer of `token` has not published them yet."""

    token: str
    chunks: list[ChunkId]


class AbandonLease(TracedMessage, frozen=True):
    """Give up a lease. Unpublished chunks of its holder will not be part of the file."""

    token: str


class OpenFile(TracedMessage, frozen=True):
    """Open the current version of a file for reading."""

    path: str
    user: str


class GetLayout(TracedMessage, frozen=True):
    """Request the chunks and replicas of the file of a read token, and renew the token, if its user may still
    read.

    If `held` is the token of a chunk that the reader knows, only that chunk is returned, even if the file no
    longer contains it.
    """

    token: str
    held: str = ""


class ChunkLayout(msgspec.Struct, frozen=True, array_like=True):
    """A chunk of a file, which uses `length` bytes of it; `replicas` are ordered nearest first."""

    chunk: ChunkId
    version: Version
    length: int
    token: str
    replicas: list[Hop]


class Layout(Message, frozen=True):
    """A file's chunks in order, and the renewed read token, if the request had one."""

    length: int
    chunks: list[ChunkLayout]
    token: str = ""


class Opened(Message, frozen=True):
    """The answer to OpenFile: a token to read the file, and its layout."""

    token: str
    layout: Layout


class ReportCorrupt(TracedMessage, frozen=True):
    """Report a replica whose data does not match its checksums."""

    chunk: ChunkId
    version: Version
    node: NodeId
