"""A chunk is written through a pipeline, or read from a datanode: what data servers are told and answer."""

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
    """A datanode's word, signed, that it holds a replica on its disk."""

    node: NodeId
    mac: bytes


class WriteChunk(TracedMessage, frozen=True):
    """Opens a chunk at a hop; the hops after it are in the token. The payload is the first packet's data.

    With `last` the chunk ends here: a small chunk is one frame down and one frame up.
    """

    token: str
    chunk: ChunkId
    version: Version
    sums: bytes
    last: bool = False


class Packet(Message, frozen=True):
    """Data of a chunk in order, on block boundaries; `sums` are the packed checksums of its blocks.

    A writer's is taken whole (`limits.packet_bytes`), a reader's in pieces (`limits.read_packet_bytes`).
    """

    offset: int
    sums: bytes
    last: bool = False


class WriteAck(Message, frozen=True):
    """The chunk is on the disk of the hop and of all after it, fsynced."""

    chunk: ChunkId
    version: Version
    length: int
    checksum: int
    receipts: list[Receipt]
    #: The time for which the hop waited for the next one; its predecessor does not hold that against it.
    waited_s: float = 0.0


class RequestDescriptor(TracedMessage, frozen=True, tag="BorrowChunk"):
    """Asks, over a local socket, for the open file of a large replica."""

    token: str
    chunk: ChunkId
    version: Version


class DescriptorShared(Message, frozen=True, tag="ChunkLent"):
    """The file comes with this message: the chunk's data from its start on, to be read only.

    `sums` are the packed checksums of all its blocks, and `length` is the chunk's: a file may show less of it.
    Datanodes of release 0.1.0 do not give the length.
    """

    sums: bytes
    length: int | None = None


class ReadChunk(TracedMessage, frozen=True):
    """Asks for a range; answered by packets that begin at the block boundary at or before `offset`."""

    token: str
    chunk: ChunkId
    version: Version
    offset: int
    length: int
