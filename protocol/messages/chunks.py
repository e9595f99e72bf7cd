"""Messages to and from data servers: writing a chunk through a pipeline, and reading one."""

from __future__ import annotations

import msgspec

from peacefs.protocol.ids import ChunkId, NodeId, Version

from .base import Message, TracedMessage


class Hop(msgspec.Struct, frozen=True, array_like=True):
    """A datanode of a pipeline and the address of its data server."""

    node: NodeId
    host: str
    port: int

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port


class Receipt(msgspec.Struct, frozen=True, array_like=True):
    """A datanode's signed statement that a replica is on its disk."""

    node: NodeId
    mac: bytes


class WriteChunk(TracedMessage, frozen=True):
    """Start writing a chunk at a hop. The token names the further hops; the payload is the first packet's data.

    With `last` the chunk ends with this data, so a small chunk needs one frame in each direction.
    """

    token: str
    chunk: ChunkId
    version: Version
    sums: bytes
    last: bool = False


class Packet(Message, frozen=True):
    """The next data of a chunk, aligned to checksum blocks; `sums` are the packed checksums of its blocks.

    Maximum sizes are `limits.packet_bytes` for writing and `limits.read_packet_bytes` for reading.
    """

    offset: int
    sums: bytes
    last: bool = False


class WriteAck(Message, frozen=True):
    """The chunk is on the disks of the sending hop and of all hops after it, fsynced."""

    chunk: ChunkId
    version: Version
    length: int
    checksum: int
    receipts: list[Receipt]
    #: How long the hop waited for its successor; its predecessor subtracts this when it measures the hop.
    waited_s: float = 0.0


class RequestDescriptor(TracedMessage, frozen=True, tag="BorrowChunk"):
    """Request the open file of a large replica, over a local socket."""

    token: str
    chunk: ChunkId
    version: Version


class DescriptorShared(Message, frozen=True, tag="ChunkLent"):
    """The answer to RequestDescriptor, sent with the open file, which begins with the chunk's data and is
    read-only.

    `sums` are the packed checksums of all blocks. `length` is the chunk's length; a file may use only a part of
    it. Datanodes of release 0.1.0 do not send the length.
    """

    sums: bytes
    length: int | None = None


class ReadChunk(TracedMessage, frozen=True):
    """Request a range; answered by packets that begin at the block boundary at or before `offset`."""

    token: str
    chunk: ChunkId
    version: Version
    offset: int
    length: int
