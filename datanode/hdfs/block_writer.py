"""Receives one block from an HDFS client, and acknowledges packets when their bytes are safe."""

from __future__ import annotations

import contextlib
import logging
from typing import Final

from peacefs.protocol.errors import BadRequest, ChecksumMismatch, PeacefsError, PeerError, PeerTimeout
from peacefs.protocol.hadoop.data_transfer import HEARTBEAT_SEQNO, UNKNOWN_SEQNO, pack_acks
from peacefs.protocol.hadoop.datatransfer_pb2 import (
    ERROR,
    ERROR_CHECKSUM,
    SUCCESS,
    BlockOpResponseProto,
    OpWriteBlockProto,
)
from peacefs.protocol.hadoop.packet_sums import PacketSums
from peacefs.protocol.ids import show
from peacefs.protocol.limits import hop_timeout_s, idle_connection_timeout_s, pipeline_hops_max
from peacefs.protocol.tokens import BlockWrite

from .block_parts import BlockParts
from .earlier_bytes import EarlierBytes
from .heartbeats import Heartbeats
from .packet_acks import PacketAcks
from .transfer_socket import Packet, TransferSocket

# While bytes are being forwarded, how often to check whether packets can be acknowledged.
forwarding_look_s: Final = 0.01

log = logging.getLogger("peacefs.hdfs")


class BlockWriter:
    """One request to write a block, from the first answer to the last packet. Belongs to the connection's thread.

    A client resends bytes after a flush or after another datanode's death. They are verified and dropped.
    """

    def __init__(
        self,
        socket: TransferSocket,
        wanted: OpWriteBlockProto,
        token: BlockWrite,
        parts: BlockParts,
        heartbeats: Heartbeats,
        earlier: EarlierBytes,
    ) -> None:
        """Check the request. Raises BadRequest for unsupported checksums or pipelines."""
        if len(wanted.targets) >= pipeline_hops_max:
            raise BadRequest(f"a pipeline of {len(wanted.targets) + 1} datanodes; at most {pipeline_hops_max}")
        self._socket = socket
        self._wanted = wanted
        self._sums = PacketSums.requested(wanted.requestedChecksum)
        self._nodes = len(wanted.targets) + 1
        self._block_bytes = token.file_block_bytes
        self._what = f"block {show(token.block)} of {wanted.header.clientName}"
        self._parts = parts
        self._heartbeats = heartbeats
        self._earlier = earlier
        self._unpublished = token.unpublished
        self._heartbeat = pack_acks([HEARTBEAT_SEQNO], self._nodes)
        self._acks = PacketAcks(self._block_bytes)
        #: The number of bytes of the block so far, including those published by earlier requests.
        self._position = token.published
        self._is_over = False

    def serve(self) -> None:
        """Write the block. After the first answer, errors are sent as an acknowledgement.

        If the client disconnects, the bytes received so far are published, because HDFS's datanodes keep them,
        too. Raises PeerError. Before the first answer, also raises BadRequest, Overloaded, and the errors of
        `EarlierBytes.of`.
        """
        try:
            self._take_over()
            self._socket.send_message(BlockOpResponseProto(status=SUCCESS, firstBadLink=""))
            # When a client closes a block, all packets but the empty last one were acknowledged and published.
            if self._wanted.stage != OpWriteBlockProto.PIPELINE_CLOSE_RECOVERY:
                self._receive()
        finally:
            self._parts.close()

    def _take_over(self) -> None:
        """Feed the bytes that another datanode acknowledged but did not publish. Raises BadRequest if lost."""
        acknowledged = self._wanted.minBytesRcvd
        if acknowledged > self._position:
            for piece in self._earlier.of(self._unpublished, acknowledged - self._position):
                self._parts.feed(piece)
                self._position += len(piece)
        if acknowledged > self._position:
            raise BadRequest(
                f"{self._what} has {self._position} bytes here, not the {acknowledged} acknowledged; "
                f"the others were lost with another datanode"
            )

    def _receive(self) -> None:
        """Receive packets until the last one."""
        try:
            while not self._is_over:
                self._step()
        except PeerError as fault:
            log.info("%s from %s ends early: %s", self._what, self._socket.peer, fault.message)
            with contextlib.suppress(PeacefsError):
                self._parts.publish()
            raise
        except PeacefsError as fault:
            status = ERROR_CHECKSUM if isinstance(fault, ChecksumMismatch) else ERROR
            log.warning("%s from %s ends early: %s", self._what, self._socket.peer, fault.message)
            with contextlib.suppress(PeerError):
                self._socket.send_all(pack_acks([UNKNOWN_SEQNO], 1, status), timeout_s=hop_timeout_s)

    def _step(self) -> None:
        if not self._parts.is_idle:
            if self._socket.has_more(forwarding_look_s):
                self._take_in(self._socket.receive_packet())
            else:
                self._acknowledge(self._acks.due(self._forwarded))
            return
        wait_s = self._acks.pause_s if self._acks else idle_connection_timeout_s
        if self._socket.has_more(wait_s):
            self._take_in(self._socket.receive_packet())
        elif self._acks:
            self._acks.paused()
            self._publish()
        else:
            raise PeerTimeout(f"{self._socket.peer} said nothing for {wait_s:g} s while it writes {self._what}")

    def _take_in(self, packet: Packet) -> None:
        header = packet.header
        if header.seqno == HEARTBEAT_SEQNO:
            self._acknowledge([HEARTBEAT_SEQNO])
            return
        self._sums.verify(packet.data, packet.sums, header.offsetInBlock)
        end = header.offsetInBlock + len(packet.data)
        if end > self._block_bytes:
            raise BadRequest(f"{self._what} has at most {self._block_bytes} bytes; a packet ends at {end}")
        if header.offsetInBlock > self._position:
            raise BadRequest(
                f"{self._what} has {self._position} bytes here, and a packet begins at {header.offsetInBlock}; "
                f"the bytes between were lost with another datanode"
            )
        self._acks.came(header.seqno, end, len(packet.data))
        if end > self._position:
            data = bytes(packet.data[self._position - header.offsetInBlock :])
            self._position = end
            with self._heartbeats.during(self._socket, self._heartbeat):
                self._parts.feed(data)
        self._acknowledge(self._acks.due(self._forwarded))
        self._is_over = header.lastPacketInBlock
        if self._is_over or header.syncBlock or end == self._block_bytes or self._is_flush_awaited():
            self._publish()

    @property
    def _forwarded(self) -> int:
        """The offset up to which later hops should have received the block."""
        return self._position - self._parts.unpublished_bytes + self._parts.forwarded_bytes

    def _is_flush_awaited(self) -> bool:
        return self._acks.is_awaited and not self._socket.has_more()

    def _publish(self) -> None:
        """Publish all received bytes, then acknowledge them."""
        with self._heartbeats.during(self._socket, self._heartbeat):
            self._parts.publish()
        self._acknowledge(self._acks.published())

    def _acknowledge(self, seqnos: list[int]) -> None:
        if seqnos:
            self._socket.send_all(pack_acks(seqnos, self._nodes), timeout_s=hop_timeout_s)
