"""Copies the bytes of one file in large pieces."""

from __future__ import annotations

from typing import Protocol

from peacefs.client.command_line.progress import TransferProgress
from peacefs.protocol.limits import packet_bytes


class CopySource(Protocol):
    """A binary file that is read to its end."""

    def read(self, size: int, /) -> bytes: ...


class Sink(Protocol):
    """A binary file. If it is unbuffered, `write` may accept only a part of the data."""

    def write(self, data: memoryview | bytes, /) -> int | None: ...


def copy(source: CopySource, sink: Sink, progress: TransferProgress) -> int:
    """Copy until the source ends; return the number of bytes."""
    copied = 0
    while piece := source.read(packet_bytes):
        taken = sink.write(piece) or 0
        while taken < len(piece):
            taken += sink.write(memoryview(piece)[taken:]) or 0
        copied += len(piece)
        progress.advance(len(piece))
    return copied
