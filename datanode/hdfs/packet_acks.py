"""Decides when a block's packets are acknowledged, and when its bytes are published. Pure.

The acknowledgement of the last packet that a client has sent promises that all bytes are durable and visible: the
client waits for it when it flushes, and before it ends a block. While packets stream in, the client only needs
older packets acknowledged, so that it may send more. Those are acknowledged once later hops should have them.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from peacefs.protocol.limits import KIB, MIB

# The last bytes of a stream stay unacknowledged until more come. Hadoop's client has at most 5 MiB open.
unacknowledged_bytes: Final = 1 * MIB
# While packets stream in, that many are acknowledged with one send.
acks_together_min: Final = 8
# A client that has sent full packets and then pauses for this long may wait for acknowledgements.
ack_pause_s: Final = 0.1
ack_pause_s_max: Final = 1.0
# A smaller packet is one that a flush or the end of the block has cut off.
full_packet_bytes_min: Final = 32 * KIB


class _Waiting(NamedTuple):
    seqno: int
    #: Where the packet begins and ends in its block.
    begin: int
    end: int


class PacketAcks:
    """The packets of one block that wait for their acknowledgement, in order."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()
        self._largest = 0
        self._is_cut_off = False
        self._held_bytes = unacknowledged_bytes
        #: How long to wait for another packet before what has come is published.
        self.pause_s = ack_pause_s

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def came(self, seqno: int, end: int, data_bytes: int) -> None:
        """Record a packet."""
        self._waiting.append(_Waiting(seqno, end - data_bytes, end))
        self._largest = max(self._largest, data_bytes)
        self._is_cut_off = data_bytes < max(self._largest, full_packet_bytes_min)

    def due(self, forwarded: int) -> list[int]:
        """Return the packets to acknowledge now. Later hops should have the block up to `forwarded`."""
        if self._is_cut_off or not self._waiting:
            return []
        newest = self._waiting[-1]
        safe = min(newest.begin, newest.end - self._held_bytes)
        if self._held_bytes == unacknowledged_bytes:
            # A client that has fewer packets open could not go on.
            safe = min(safe, forwarded)
            if len(self._waiting) < acks_together_min or self._waiting[acks_together_min - 1].end > safe:
                return []
        seqnos = []
        while self._waiting and self._waiting[0].end <= safe:
            seqnos.append(self._waiting.popleft().seqno)
        return seqnos

    @property
    def is_awaited(self) -> bool:
        """True if the client probably waits for the last packet, unless it has sent more already."""
        return bool(self._waiting) and self._is_cut_off

    def paused(self) -> None:
        """Record that no packet came for `pause_s`: the client is slow, or has fewer packets open than assumed."""
        if len(self._waiting) > 1:
            self.pause_s = min(2 * self.pause_s, ack_pause_s_max)
        open_bytes = self._waiting[-1].end - self._waiting[0].begin
        self._held_bytes = min(self._held_bytes, open_bytes // 2)

    def published(self) -> list[int]:
        """Return all packets, whose bytes are now published, to acknowledge them."""
        seqnos = [packet.seqno for packet in self._waiting]
        self._waiting.clear()
        return seqnos
