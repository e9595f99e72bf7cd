"""Files: what writers and readers, clients or gateways, ask of the coordinator. See decisions 3, 8 and 13."""

from __future__ import annotations

import msgspec

from peacefs.protocol.ids import ChunkId, NodeId, Version
from peacefs.protocol.new_file import NewFile

from .base import Message, TracedMessage
from .chunks import Hop, Receipt


class CreateFile(TracedMessage, frozen=True):
    """A client wants to write a file; sent again under the same request id it is the same request.

    `abandoned` was preallocated for the same request and will not be part of it; `exclude` are nodes that failed.
    One that `is_empty` is published at once and answered by Completed; a coordinator of before answers Created.
    """

    file: NewFile
    abandoned: ChunkId | None = None
    exclude: list[NodeId] = []
    is_empty: bool = False


class AllocateChunk(TracedMessage, frozen=True):
    """A writer wants a (further or replacing) chunk for the file of `token`; `exclude` are failed nodes.

    `written_bytes` is how many it has written before that chunk.
    """

    token: str
    exclude: list[NodeId] = []
    abandoned: ChunkId | None = None
    written_bytes: int = 0


class Allocated(Message, frozen=True):
    """Write this chunk through `pipeline` with `token`."""

    chunk: ChunkId
    version: Version
    pipeline: list[Hop]
    token: str


class Created(Message, frozen=True):
    """A token to write a file, its first chunk, and the block size that it gets."""

    token: str
    allocated: Allocated
    block_bytes: int = 0


class WrittenChunk(msgspec.Struct, frozen=True, array_like=True):
    """A chunk that its pipeline acknowledged."""

    chunk: ChunkId
    version: Version
    length: int
    checksum: int
    receipts: list[Receipt]


class CompleteFile(TracedMessage, frozen=True):
    """Publish the file of `token` with these chunks, in order; with a lease's token, add them to its end.

    There they take the place of its last chunks, those in `replaced`, whose bytes they begin with.
    `ahead` is the id of a request to come, as in PublishFile.
    """

    token: str
    chunks: list[WrittenChunk]
    replaced: list[ChunkId] = []
    ahead: str = ""


class PublishFile(TracedMessage, frozen=True):
    """CreateFile and CompleteFile in one, for a file of one chunk that was preallocated for this request.

    `token` is the chunk's. `ahead` is the id of a request to come, for which a chunk is preallocated now.
    """

    file: NewFile
    chunk: WrittenChunk
    token: str
    ahead: str = ""


class Completed(Message, frozen=True):
    """The file is there and will stay. `ahead` is the chunk for the request to come, if one was placed."""

    length: int
    ahead: Allocated | None = None


class FlushFile(TracedMessage, frozen=True):
    """As CompleteFile, but the writer goes on: the file of a new one's token appears, and `holder` has its lease.

    Asked again under the same `request_id` it is done once. With `unless_there` a new file never replaces another.
    """

    token: str
    chunks: list[WrittenChunk]
    holder: str
    request_id: str
    replaced: list[ChunkId] = []
    unless_there: bool = False


class Flushed(Message, frozen=True):
    """The file is `length` bytes long and will stay so; go on with `token` and, if one was placed, this chunk."""

    token: str
    length: int
    allocated: Allocated | None = None


class FlushUploads(TracedMessage, frozen=True):
    """Show the files whose bodies are on their way through this gateway, up to what has come of them.

    `uploads` are request ids of CREATEs and holders of leases. A body that is not here yet is waited for, for
    `wait_s`; answered by UploadsFlushed.
    """

    uploads: list[str]
    wait_s: float
    epoch: int = 0


class UploadsFlushed(Message, frozen=True):
    """Done, except for those that are `missing`: no body has come, or it has ended, or will appear whole."""

    missing: list[str]


class TakeLease(TracedMessage, frozen=True):
    """Begin to extend the file that `token` permits to. Sent again by the same `holder` it is renewed."""

    token: str
    holder: str


class Leased(Message, frozen=True):
    """The right to extend a file, which is `length` bytes long, with `token`, and the first chunk for it."""

    token: str
    allocated: Allocated
    length: int
    block_bytes: int
    replication: int


class RenewLease(TracedMessage, frozen=True):
    """The holder of a lease is still there."""

    token: str


class KeepChunks(TracedMessage, frozen=True):
    """The writer of `token` still holds these chunks, which are written, or being written, for no file yet."""

    token: str
    chunks: list[ChunkId]


class AbandonLease(TracedMessage, frozen=True):
    """The holder of a lease gives it up; nothing of what it has written will be part of the file."""

    token: str


class OpenFile(TracedMessage, frozen=True):
    """A client wants to read a file as it is now."""

    path: str
    user: str


class GetLayout(TracedMessage, frozen=True):
    """Asks where the data of the file of a read token is, if its user may still read it; renews the token.

    With `held`, the token of a chunk that the reader has come to know, only for that chunk, which the file may
    have replaced by now.
    """

    token: str
    held: str = ""


class ChunkLayout(msgspec.Struct, frozen=True, array_like=True):
    """A chunk of a file: `length` bytes of it are used; `replicas` nearest first."""

    chunk: ChunkId
    version: Version
    length: int
    token: str
    replicas: list[Hop]


class Layout(Message, frozen=True):
    """A file's chunks in order, and the read token renewed, where it was asked with one."""

    length: int
    chunks: list[ChunkLayout]
    token: str = ""


class Opened(Message, frozen=True):
    """A token to read a file, and where its data is."""

    token: str
    layout: Layout


class ReportCorrupt(TracedMessage, frozen=True):
    """A reader met a replica whose bytes fail their checksum."""

    chunk: ChunkId
    version: Version
    node: NodeId
