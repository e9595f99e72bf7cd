"""One chunk, kept by its writer until it is acknowledged: cut into packets, with their checksums.

All packets stay in memory until then. If the pipeline breaks, another one gets the chunk from its first byte.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from peacefs.protocol.checksums import Bytes, block_checksums
from peacefs.protocol.limits import packet_bytes, source_silence_s
from peacefs.runtime import effects as fx

from .byte_stream import ByteStream


class OutgoingPacket(NamedTuple):
    """A piece of a chunk that begins on a checksum block boundary, and the packed checksums of its blocks."""

    offset: int
    sums: bytes
    data: Bytes
    last: bool


class PacketSource(Protocol):
    """The source of a chunk's packets, in order."""

    def packet(self, index: int, *, wait_s: float) -> fx.Steps[OutgoingPacket | None]:
        """Return the packet with this number, from 0, or None if it is not available within `wait_s`.

        All packets but the last have the same length, at most `limits.packet_bytes`. Only the packet marked `last`
        may be empty.
        """
        ...


class ResendableSource(PacketSource, Protocol):
    """A packet source that can be replayed on another pipeline."""

    def failed_at_source(self) -> bool:
        """Return whether `packet` raised the producer's own error, which no other pipeline can fix."""
        ...


class ChunkBuffer:
    """Takes up to `capacity_bytes` from the stream, packet by packet. Belongs to one participant."""

    def __init__(self, source: ByteStream, capacity_bytes: int) -> None:
        self._source = source
        self._capacity_bytes = capacity_bytes
        self._packets: list[OutgoingPacket] = []
        self._gathered: list[memoryview] = []
        self._gathered_bytes = 0
        self._length = 0
        self._silence_s = 0.0

    def packet(self, index: int, *, wait_s: float) -> fx.Steps[OutgoingPacket | None]:
        """See `PacketSource`. After a hop's error the packets can be read again. Raises the source's error."""
        if index == len(self._packets):
            if not (yield from self._gather(wait_s)):
                return None
            self._packets.append(self._cut())
        return self._packets[index]

    def failed_at_source(self) -> bool:
        """Return whether `packet` raised the producer's own error, which no other pipeline can fix."""
        return self._source.error is not None

    def _gather(self, wait_s: float) -> fx.Steps[bool]:
        """Wait for a full packet or the end. Small pieces in between do not extend `wait_s`."""
        wanted = min(packet_bytes, self._capacity_bytes - self._length)
        started: float | None = None
        while self._gathered_bytes < wanted and not self._source.ended:
            piece = self._source.take(wanted - self._gathered_bytes)
            if len(piece):
                self._gathered.append(piece)
                self._gathered_bytes += len(piece)
                self._silence_s = 0.0
                continue
            now = yield from fx.now()
            started = now if started is None else started
            # One subtraction decides both "not yet" and "time is up". Two could disagree after rounding.
            left_s = started + wait_s - now
            if left_s <= 0:
                self._count_silence(wait_s)
                return False
            yield from self._source.readable(timeout_s=left_s)
        return True

    def _count_silence(self, seconds: float) -> None:
        self._silence_s += seconds
        if self._silence_s >= source_silence_s:
            raise self._source.silent()

    def _cut(self) -> OutgoingPacket:
        data = self._gathered[0] if len(self._gathered) == 1 else b"".join(self._gathered)
        self._gathered, self._gathered_bytes = [], 0
        offset, self._length = self._length, self._length + len(data)
        last = self._length == self._capacity_bytes or self._source.ended
        return OutgoingPacket(offset, block_checksums(data), data, last)
