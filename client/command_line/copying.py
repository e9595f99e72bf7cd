"""Moves the bytes of one file, in big pieces."""

from __future__ import annotations

from typing import Protocol

from peacefs.protocol.limits import packet_bytes

from .progress import TransferProgress


class Source(Protocol):
    """What `readinto` of binary files does."""

    def readinto(self, buffer: bytearray, /) -> int | None: ...


class Sink(Protocol):
    """What `write` of binary files does."""

    def write(self, data: memoryview, /) -> int | None: ...


def copy(source: Source, sink: Sink, progress: TransferProgress) -> int:
    """Until the source ends; returns how many bytes there were."""
    buffer = bytearray(packet_bytes)
    view = memoryview(buffer)
    copied = 0
    while count := source.readinto(buffer):
        piece = view[:count]
        while piece:
            piece = piece[sink.write(piece) or 0 :]
        copied += count
        progress.advance(count)
    return copied
