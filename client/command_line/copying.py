"""Moves the bytes of one file, in big pieces."""

from __future__ import annotations

from typing import Protocol

from peacefs.protocol.limits import packet_bytes

from .progress import TransferProgress


class CopySource(Protocol):
    """A binary file that is read to its end."""

    def read(self, size: int, /) -> bytes: ...


class Sink(Protocol):
    """A binary file; without a buffer of its own, `write` may take only a part."""

    def write(self, data: memoryview | bytes, /) -> int | None: ...


def copy(source: CopySource, sink: Sink, progress: TransferProgress) -> int:
    """Until the source ends; returns how many bytes there were."""
    copied = 0
    while piece := source.read(packet_bytes):
        taken = sink.write(piece) or 0
        while taken < len(piece):
            taken += sink.write(memoryview(piece)[taken:]) or 0
        copied += len(piece)
        progress.advance(len(piece))
    return copied
