"""Which flushed pieces of a file are written anew with what follows, so that many flushes make few chunks. Pure.

A flush makes a chunk of what was written since the last one. It takes in the piece before while that is at most
twice as long as what it has so far, so that of the pieces that stay each is more than twice as long as the next:
there are at most log2(merge_bytes) + 1. A byte that is written anew becomes part of something at least half as
long again, so it is written log1.5(merge_bytes) + 2 times at most. A piece of `merge_bytes`, which has taken in
all before it, is let alone from then on: of the rest of the file each chunk is at least so long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from peacefs.protocol.ids import ChunkId
from peacefs.protocol.messages import WrittenChunk


class _Piece(NamedTuple):
    chunk: ChunkId
    data: bytes


class FlushedTail:
    """The last pieces that one writer has flushed, with their bytes: less than twice `merge_bytes`."""

    def __init__(self, merge_bytes: int) -> None:
        self._merge_bytes = merge_bytes
        self._pieces: list[_Piece] = []

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def take_in(self, fresh: bytes) -> tuple[list[ChunkId], bytes]:
        """The pieces that a flush of `fresh` replaces, in order, and all the bytes that it is to write."""
        length, taken = len(fresh), []
        while self._pieces and len(self._pieces[-1].data) <= 2 * length:
            taken.append(self._pieces.pop())
            length += len(taken[-1].data)
        taken.reverse()
        return [piece.chunk for piece in taken], b"".join([*(piece.data for piece in taken), fresh])

    def flushed(self, chunks: Sequence[WrittenChunk], data: bytes) -> None:
        """These chunks, with these bytes, are the end of the file now."""
        if not chunks:
            return
        if len(chunks) > 1 or len(data) >= self._merge_bytes:
            self.forget()
        else:
            self._pieces.append(_Piece(chunks[0].chunk, data))

    def forget(self) -> None:
        """What has been flushed is let alone."""
        self._pieces.clear()
