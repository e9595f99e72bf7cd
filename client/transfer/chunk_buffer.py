"""One chunk as the writer holds it until it is acknowledged: cut into packets, with their checksums.

Everything stays in memory until then, because a pipeline that breaks is replaced by another, which gets the
chunk from its first byte.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from peacefs.protocol.checksums import Bytes, block_checksums
from peacefs.protocol.limits import packet_bytes, source_silence_s
from peacefs.runtime import effects as fx

from .byte_stream import ByteStream


class OutgoingPacket(NamedTuple):
    """A piece of a chunk that begins on a block boundary, and the packed checksums of its blocks."""

    offset: int
    sums: bytes
    data: Bytes
    last: bool


class PacketSource(Protocol):
    """The source from which a sender takes a chunk's packets, in order."""

    def packet(self, index: int, *, wait_s: float) -> fx.Steps[OutgoingPacket | None]:
        """The packet with this number, from 0; None when there is none yet after `wait_s`.

        Packets are of one length, `limits.packet_bytes` at most, except the one before the end; only the one that
        says `last` may be empty.
        """
        ...


class ResendableSource(PacketSource, Protocol):
    """One that gives the packets again, for another pipeline."""

    def failed_at_source(self) -> bool:
        """Return whether an error out of `packet` was the producer's own, which no other pipeline can mend."""
        ...


class ChunkBuffer:
    """Takes up to `capacity_bytes` from the stream, as much as is asked for; belongs to one participant."""

    def __init__(self, source: ByteStream, capacity_bytes: int) -> None:
        self._source = source
        self._capacity_bytes = capacity_bytes
        self._packets: list[OutgoingPacket] = []
        self._gathered: list[memoryview] = []
        self._gathered_bytes = 0
        self._length = 0
        self._silence_s = 0.0

    def packet(self, index: int, *, wait_s: float) -> fx.Steps[OutgoingPacket | None]:
        """See `PacketSource`. Raises the source's error; the same packet again after that of a hop."""
        if index == len(self._packets):
            if not (yield from self._gather(wait_s)):
                return None
            self._packets.append(self._cut())
        return self._packets[index]

    def failed_at_source(self) -> bool:
        """Return whether an error out of `packet` was the producer's own, which no other pipeline can mend."""
        return self._source.error is not None

    def _gather(self, wait_s: float) -> fx.Steps[bool]:
        """Until a full packet, or the last, is there. A drip of small pieces is not taken for progress."""
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
            # One difference for both, which rounding cannot make "not yet" and "no more time" at once.
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
