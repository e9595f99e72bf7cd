"""Decides when a block's packets are acknowledged, and when its bytes are published. Pure.

If a client waits for the acknowledgement of its last packet, it is flushing or ending the block. That
acknowledgement promises that all bytes are durable and visible. While a client streams, it needs acknowledgements
of older packets only, so that it may send more. Those packets are acknowledged once later hops should have
received them.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from peacefs.protocol.limits import KIB, MIB

# The last bytes of a stream stay unacknowledged until more arrive. Hadoop's client has at most 5 MiB of
# unacknowledged packets.
unacknowledged_bytes: Final = 1 * MIB
# While a client streams, this many packets are acknowledged with one send.
acks_together_min: Final = 8
# A client that pauses for this long after full packets may be waiting for acknowledgements.
ack_pause_s: Final = 0.1
ack_pause_s_max: Final = 1.0
# A smaller packet was cut off by a flush or by the end of the block.
full_packet_bytes_min: Final = 32 * KIB
# Hadoop's client makes a packet at most as long as what is left of the block, with its header and with 4 bytes of
# checksum for each 512. So a block ends with packets that become shorter.
_HEADER_BYTES: Final = 33
_UNIT_BYTES: Final = 512


class _Waiting(NamedTuple):
    seqno: int
    #: The offsets in the block at which the packet begins and ends.
    begin: int
    end: int


class PacketAcks:
    """The unacknowledged packets of one block, in order."""

    def __init__(self, block_bytes: int) -> None:
        """`block_bytes`: the length at which the client begins another block."""
        self._block_bytes = block_bytes
        self._waiting: deque[_Waiting] = deque()
        self._largest = 0
        self._is_cut_off = False
        self._held_bytes = unacknowledged_bytes
        #: How long to wait for another packet before publishing the received bytes.
        self.pause_s = ack_pause_s

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def came(self, seqno: int, end: int, data_bytes: int) -> None:
        """Record a packet."""
        self._waiting.append(_Waiting(seqno, end - data_bytes, end))
        self._largest = max(self._largest, data_bytes)
        left_bytes = self._block_bytes - end + data_bytes
        near_end = max(1, (left_bytes - _HEADER_BYTES) // (_UNIT_BYTES + 4)) * _UNIT_BYTES
        self._is_cut_off = data_bytes < max(self._largest, full_packet_bytes_min) and data_bytes != near_end

    def due(self, forwarded: int) -> list[int]:
        """Return the packets to acknowledge now. Later hops should have received the block up to `forwarded`."""
        if self._is_cut_off or not self._waiting:
            return []
        newest = self._waiting[-1]
        safe = min(newest.begin, newest.end - self._held_bytes)
        if self._held_bytes == unacknowledged_bytes:
            # The client allows fewer unacknowledged packets than assumed, so it must not wait for later hops.
            safe = min(safe, forwarded)
            if len(self._waiting) < acks_together_min or self._waiting[acks_together_min - 1].end > safe:
                return []
        seqnos = []
        while self._waiting and self._waiting[0].end <= safe:
            seqnos.append(self._waiting.popleft().seqno)
        return seqnos

    @property
    def is_awaited(self) -> bool:
        """True if the client probably waits for the acknowledgement of the last packet."""
        return bool(self._waiting) and self._is_cut_off

    def paused(self) -> None:
        """Record a pause of `pause_s`: the client is slow, or allows fewer unacknowledged packets."""
        if len(self._waiting) > 1:
            self.pause_s = min(2 * self.pause_s, ack_pause_s_max)
        open_bytes = self._waiting[-1].end - self._waiting[0].begin
        self._held_bytes = min(self._held_bytes, open_bytes // 2)

    def published(self) -> list[int]:
        """Return all packets to acknowledge, because their bytes are now published."""
        seqnos = [packet.seqno for packet in self._waiting]
        self._waiting.clear()
        return seqnos
