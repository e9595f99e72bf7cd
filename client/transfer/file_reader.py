"""Reads a range of one file, chunk after chunk."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from peacefs.protocol.errors import FileChanged
from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import hop_timeout_s as default_hop_timeout_s
from peacefs.protocol.limits import packet_bytes
from peacefs.protocol.messages import ChunkLayout, GetLayout, Layout, Opened
from peacefs.runtime import effects as fx

from .chunk_reader import ChunkReader
from .short_circuit import SharedDescriptors


class FileReader:
    """Gives the bytes from `offset` on, `length` of them or as many as there are; belongs to one participant.

    `token` is the FileRead token with which `layout` was got; what both are by now, for the next reader of the
    file, is in `opened`. Whoever does not read to the end calls `close`, and whoever gives `descriptors`, for
    several readers of one file, closes those. Who gives `avoided` to each of them has nodes that failed one asked
    last by all.
    """

    def __init__(
        self,
        token: str,
        layout: Layout,
        offset: int,
        length: int,
        *,
        hop_timeout_s: float = default_hop_timeout_s,
        descriptors: SharedDescriptors | None = None,
        avoided: set[NodeId] | None = None,
    ) -> None:
        self._token = token
        self._layout = layout
        self._descriptors = descriptors or SharedDescriptors(kept_max=0)
        self._hop_timeout_s = hop_timeout_s
        self._avoided = set() if avoided is None else avoided
        end = min(offset + length, layout.length)
        #: The number of bytes that the reader gives in all.
        self.wanted_bytes = max(end - offset, 0)
        self._readers = self._readers_of(layout, offset, end)
        self._reader: ChunkReader | None = next(self._readers, None)

    @property
    def opened(self) -> Opened:
        """The token and the layout, renewed where that was needed."""
        return Opened(self._token, self._layout)

    def next_piece(self, into: memoryview | None = None) -> fx.Steps[memoryview | None]:
        """The next bytes, verified, valid until the next call; None at the end.

        Raises ChunkUnavailable, and AccessDenied if the file may not be read any more.
        They may lie in `into`, as `ChunkReader` says.
        """
        while self._reader is not None:
            piece = yield from self._reader.next_piece(into)
            if piece is not None:
                return piece
            self._reader = next(self._readers, None)
        return None

    def close(self) -> fx.Steps[None]:
        if self._reader is not None:
            yield from self._reader.close()
            self._reader = None

    def _readers_of(self, layout: Layout, start: int, end: int) -> Iterator[ChunkReader]:
        """One for each chunk that has a part in the bytes from `start` to before `end`."""
        begin = 0
        for index, chunk in enumerate(layout.chunks):
            first = max(start - begin, 0)
            last = min(end - begin, chunk.length)
            if first < last:
                yield ChunkReader(
                    chunk,
                    first,
                    last - first,
                    partial(self._relocate, index),
                    self._avoided,
                    self._descriptors,
                    hop_timeout_s=self._hop_timeout_s,
                )
            begin += chunk.length

    def _relocate(self, index: int, known: ChunkLayout) -> fx.Steps[ChunkLayout]:
        """Return where the opened chunk is now, with a token to read it.

        Raises FileChanged if it is another chunk.
        """
        found = yield from fx.call(GetLayout(self._token, known.token), Layout)
        (chunk,) = found.chunks
        if (chunk.chunk, chunk.version) != (known.chunk, known.version):
            raise FileChanged("the file was changed or replaced while it was being read; open it again")
        renewed = replace(known, token=chunk.token, replicas=chunk.replicas)
        self._token = found.token
        self._layout = replace(
            self._layout, chunks=[*self._layout.chunks[:index], renewed, *self._layout.chunks[index + 1 :]]
        )
        return renewed


def read_whole(token: str, layout: Layout, *, hop_timeout_s: float = default_hop_timeout_s) -> fx.Steps[bytes]:
    """A whole file that is known to be small."""
    return (yield from read_range(token, layout, 0, layout.length, hop_timeout_s=hop_timeout_s))


def read_range(
    token: str,
    layout: Layout,
    offset: int,
    length: int,
    *,
    hop_timeout_s: float = default_hop_timeout_s,
    descriptors: SharedDescriptors | None = None,
) -> fx.Steps[bytes]:
    """The bytes from `offset` on, `length` of them or as many as there are."""
    reader = FileReader(token, layout, offset, length, hop_timeout_s=hop_timeout_s, descriptors=descriptors)
    return (yield from read_rest(reader))


def read_rest(reader: FileReader) -> fx.Steps[bytes]:
    """Read everything from a reader that has given nothing yet."""
    if reader.wanted_bytes <= packet_bytes:
        pieces: list[bytes] = []
        while (piece := (yield from reader.next_piece())) is not None:
            pieces.append(bytes(piece))
        return b"".join(pieces)
    # Received where it is to stay: `getvalue` hands out the buffer's own bytes, without a copy.
    buffer = io.BytesIO()
    buffer.seek(reader.wanted_bytes - 1)
    buffer.write(b"\0")
    with buffer.getbuffer() as room:
        yield from read_rest_into(reader, room)
    return buffer.getvalue()


def read_rest_into(reader: FileReader, target: memoryview) -> fx.Steps[int]:
    """Read everything from a reader that has given nothing yet, and return how many bytes that are.

    `target` has room for them.
    """
    at = 0
    while (piece := (yield from reader.next_piece(target[at:]))) is not None:
        if piece.obj is not target.obj:
            target[at : at + len(piece)] = piece
        at += len(piece)
    return at
