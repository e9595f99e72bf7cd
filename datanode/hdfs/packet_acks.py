"""Decides when a block's packets are acknowledged, and when its bytes are published. Pure.

The acknowledgement of the last packet that a client has sent promises that all bytes are durable and visible: the
client waits for it when it flushes, and before it ends a block. While packets stream in, the client only needs
older packets acknowledged, so that it may send more. Those are acknowledged at once.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from peacefs.protocol.limits import KIB

# Number of full packets of a stream that stay unacknowledged until more come. Hadoop's client has at most 80 open.
acks_held_max: Final = 16
# A client that has sent full packets and then pauses for this long may wait for acknowledgements.
ack_pause_s: Final = 0.1
ack_pause_s_max: Final = 1.0
# A smaller packet is one that a flush or the end of the block has cut off.
full_packet_bytes_min: Final = 32 * KIB


class PacketAcks:
    """The packets of one block that wait for their acknowledgement, in order."""

    def __init__(self) -> None:
        self._waiting: deque[int] = deque()
        self._largest = 0
        self._is_cut_off = False
        self._held_max = acks_held_max
        #: How long to wait for another packet before what has come is published.
        self.pause_s = ack_pause_s

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def came(self, seqno: int, data_bytes: int) -> list[int]:
        """Record a packet; return the packets that are acknowledged at once."""
        self._waiting.append(seqno)
        self._largest = max(self._largest, data_bytes)
        self._is_cut_off = data_bytes < max(self._largest, full_packet_bytes_min)
        if self._is_cut_off:
            return []
        return [self._waiting.popleft() for _ in range(len(self._waiting) - self._held_max)]

    @property
    def is_awaited(self) -> bool:
        """True if the client probably waits for the last packet, unless it has sent more already."""
        return bool(self._waiting) and self._is_cut_off

    def paused(self) -> None:
        """Record that no packet came for `pause_s`: the client is slow, or has fewer packets open than assumed."""
        self.pause_s = min(2 * self.pause_s, ack_pause_s_max)
        self._held_max //= 2

    def published(self) -> list[int]:
        """Return all packets, whose bytes are now published, to acknowledge them."""
        seqnos = list(self._waiting)
        self._waiting.clear()
        return seqnos
