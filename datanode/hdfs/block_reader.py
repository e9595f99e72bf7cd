"""Sends a replica to an HDFS client: the stored bytes and checksums, in HDFS's packets."""

from __future__ import annotations

from typing import Final

from peacefs.datanode.pipeline.chunk_server import ChunkServer
from peacefs.protocol.checksums import Bytes, sums_between
from peacefs.protocol.errors import BadRequest, PeacefsError
from peacefs.protocol.hadoop.data_transfer import delimited, pack_packet
from peacefs.protocol.hadoop.datatransfer_pb2 import (
    CHECKSUM_OK,
    SUCCESS,
    BlockOpResponseProto,
    ClientReadStatusProto,
    OpBlockChecksumProto,
    OpBlockChecksumResponseProto,
    OpReadBlockProto,
    ReadOpChecksumInfoProto,
)
from peacefs.protocol.hadoop.hdfs_pb2 import (
    CHECKSUM_CRC32C,
    CHECKSUM_NULL,
    COMPOSITE_CRC,
    BlockChecksumOptionsProto,
    ExtendedBlockProto,
)
from peacefs.protocol.hadoop.packet_sums import HDFS_UNIT, BlockDigest, PacketSums
from peacefs.protocol.limits import MIB, checksum_block_bytes, idle_connection_timeout_s, packet_bytes
from peacefs.protocol.messages import Message, Packet, ReadChunk
from peacefs.runtime import effects as fx
from peacefs.runtime.disk_files import DiskFile
from peacefs.runtime.thread_driver import ThreadDriver

from .transfer_socket import TransferSocket

# A multiple of the checksum block size. A client has a buffer of this size.
sent_packet_bytes: Final = 1 * MIB
# How long to wait for the client's report that it has verified the data.
read_status_timeout_s: Final = 30.0


class PacketsToReader(fx.Connection):
    """Converts the packets of a `ChunkServer` to HDFS's packets. Serves one request, on one thread."""

    def __init__(self, socket: TransferSocket, sums: PacketSums) -> None:
        """Announce the checksum type `sums` before the first packet: the stored type, or NULL."""
        self.peer = socket.peer
        self._socket = socket
        self._sums = sums
        self._seqno = -1
        self._offset = 0

    @property
    def has_begun(self) -> bool:
        return self._seqno >= 0

    def send(self, message: Message, payload: Bytes, timeout_s: float) -> None:
        """Perform `fx.Send` with a Packet."""
        assert isinstance(message, Packet)
        with memoryview(payload) as data:
            for at in range(0, len(data), sent_packet_bytes):
                piece = data[at : at + sent_packet_bytes]
                self._socket.send_all(self._head(message, at, len(piece)), piece, timeout_s=timeout_s)

    def send_file(self, message: Message, file: DiskFile, offset: int, length: int, timeout_s: float) -> None:
        """Perform `fx.SendFile` with a Packet. Raises OSError if the disk fails."""
        assert isinstance(message, Packet)
        for at in range(0, length, sent_packet_bytes):
            count = min(sent_packet_bytes, length - at)
            self._socket.send_all(self._head(message, at, count), timeout_s=timeout_s, more=True)
            self._socket.send_part(file.descriptor, offset + at, count, timeout_s)

    def _head(self, packet: Packet, at: int, count: int) -> bytes:
        """Return the header and checksums for the packet at offset `at`."""
        answer = b""
        if not self.has_begun:
            answer = self._answer(packet.offset)
        self._seqno += 1
        sums = sums_between(packet.sums, at, at + count) if self._sums.kind != CHECKSUM_NULL else b""
        self._offset = packet.offset + at + count
        return answer + pack_packet(packet.offset + at, self._seqno, sums, count)

    def _answer(self, first_offset: int) -> bytes:
        info = ReadOpChecksumInfoProto(checksum=self._sums.described(), chunkOffset=first_offset)
        return delimited(BlockOpResponseProto(status=SUCCESS, readOpChecksumInfo=info))

    def end(self) -> None:
        """Send the empty packet that ends the answer."""
        raw = pack_packet(self._offset, self._seqno + 1, b"", 0, last=True)
        self._socket.send_all(raw, timeout_s=idle_connection_timeout_s)

    def close(self) -> None:
        """Close the connection. In the middle of a packet, this is the only way to report an error."""
        self._socket.close()


class BlockReads:
    """Serves requests for a block's data and for its checksum. One instance serves all connections."""

    def __init__(self, server: ChunkServer, driver: ThreadDriver) -> None:
        self._server = server
        self._driver = driver

    def send(self, socket: TransferSocket, wanted: OpReadBlockProto, token: str) -> bool:
        """Send a range of a block. Return whether the connection can be used again.

        Raises the errors of `ChunkServer.send_chunk` if nothing has been sent yet.
        """
        block = wanted.header.baseHeader.block
        kind = CHECKSUM_CRC32C if wanted.sendChecksums else CHECKSUM_NULL
        reader = PacketsToReader(socket, PacketSums(kind, checksum_block_bytes))
        request = _read(block, token, wanted.offset, wanted.len)
        try:
            self._driver.run(self._server.send_chunk(reader, request))
            reader.end()
        except PeacefsError:
            if reader.has_begun:
                return False
            raise
        # A client that needs only a part of the answer closes the connection instead.
        status = socket.receive_message(ClientReadStatusProto, read_status_timeout_s).status
        return status in (SUCCESS, CHECKSUM_OK)

    def checksum(self, socket: TransferSocket, wanted: OpBlockChecksumProto, token: str) -> None:
        """Send the checksum of the first bytes of a block, up to the length in the request."""
        block = wanted.header.block
        options = wanted.blockChecksumOptions
        digest = BlockDigest()
        self._driver.run(self._digest(_read(block, token, 0, block.numBytes), digest))
        if options.blockChecksumType == COMPOSITE_CRC:
            if options.stripeLength:
                raise BadRequest("blocks are not striped here, so their checksums have no stripes")
            summed, per_block = digest.composite_crc(), 0
        else:
            summed, per_block = digest.md5_of_sums(), -(-block.numBytes // HDFS_UNIT)
        answer = OpBlockChecksumResponseProto(
            bytesPerCrc=HDFS_UNIT,
            crcPerBlock=per_block,
            blockChecksum=summed,
            crcType=CHECKSUM_CRC32C,
            blockChecksumOptions=BlockChecksumOptionsProto(
                blockChecksumType=options.blockChecksumType, stripeLength=options.stripeLength
            ),
        )
        socket.send_message(BlockOpResponseProto(status=SUCCESS, checksumResponse=answer))

    def _digest(self, request: ReadChunk, digest: BlockDigest) -> fx.Steps[None]:
        plan = yield from self._server.open_for_remote(request)
        if plan.length < request.length:
            yield from self._server.close(plan)
            raise BadRequest(f"the block has {plan.length} bytes here, not {request.length}")
        left = request.length
        while left:
            piece = yield from self._server.read_piece(plan, request, packet_bytes)
            digest.take_in(piece)
            left -= len(piece)
        yield from self._server.close(plan)


def _read(block: ExtendedBlockProto, token: str, offset: int, length: int) -> ReadChunk:
    return ReadChunk(token, block.blockId, block.generationStamp, offset, length)
