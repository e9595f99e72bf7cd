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
    """Reads up to `length` bytes of a file from `offset`, chunk after chunk. Belongs to one participant.

    `layout` was obtained with the FileRead token `token`. `opened` returns both as renewed, for the file's next
    reader. A caller that stops early must call `close`. Readers of one file may share `descriptors`, which their
    owner closes, and `avoided`, the failed nodes, which all of them try last.
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
        #: The total number of bytes that the reader returns.
        self.wanted_bytes = max(end - offset, 0)
        self._readers = self._readers_of(layout, offset, end)
        self._reader: ChunkReader | None = next(self._readers, None)

    @property
    def opened(self) -> Opened:
        """The token and the layout, renewed if that was necessary."""
        return Opened(self._token, self._layout)

    def next_piece(self, into: memoryview | None = None) -> fx.Steps[memoryview | None]:
        """Return the next verified bytes, valid until the next call; None at the end.

        The bytes may be placed in `into`, as `ChunkReader` describes. Raises ChunkUnavailable, and AccessDenied if
        the file may no longer be read.
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
        """Yield a reader for each chunk that overlaps the bytes from `start` to before `end`."""
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
        """Return the replicas that a chunk has now, with a new token. Raises FileChanged if it was replaced."""
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
    """Read a whole file that is known to be small."""
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
    """Return up to `length` bytes from `offset`."""
    reader = FileReader(token, layout, offset, length, hop_timeout_s=hop_timeout_s, descriptors=descriptors)
    return (yield from read_rest(reader))


def read_rest(reader: FileReader) -> fx.Steps[bytes]:
    """Read everything from a reader that has returned nothing yet."""
    if reader.wanted_bytes <= packet_bytes:
        pieces: list[bytes] = []
        while (piece := (yield from reader.next_piece())) is not None:
            pieces.append(bytes(piece))
        return b"".join(pieces)
    # Receive into the final buffer: `getvalue` returns the buffer's own bytes without a copy.
    buffer = io.BytesIO()
    buffer.seek(reader.wanted_bytes - 1)
    buffer.write(b"\0")
    with buffer.getbuffer() as room:
        yield from read_rest_into(reader, room)
    return buffer.getvalue()


def read_rest_into(reader: FileReader, target: memoryview) -> fx.Steps[int]:
    """Read everything from a new reader into `target`, which has room for it; return the number of bytes."""
    at = 0
    while (piece := (yield from reader.next_piece(target[at:]))) is not None:
        if piece.obj is not target.obj:
            target[at : at + len(piece)] = piece
        at += len(piece)
    return at
