"""Recognise and unpack the codecs of Spark's changelogs, deltas and snapshots of records.

    lz4      LZ4Block frames (`lz4_stream`)
    lzf      chunks of `ZV`, as the Java library compress-lzf writes them
    snappy   the header of snappy-java, then blocks, each after its length
    zstd     Zstandard frames

LZ4 frames have checksums. The other codecs are verified by their structure only. pyarrow, part of the extra
`spark`, unpacks Snappy and Zstandard.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from peacefs.protocol.errors import CheckpointDamaged, CheckpointTooNew
from peacefs.protocol.limits import MIB

from . import lz4_stream
from .binary import DataInput

# The largest size of an unpacked changelog.
checkpoint_contents_bytes_max: Final = 1024 * MIB


_LZF = b"ZV"
_LZF_RAW, _LZF_PACKED = 0, 1
_SNAPPY = b"\x82SNAPPY\x00"
_SNAPPY_VERSION = 1
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_PIECE_BYTES = 1 << 20
_MAGICS = {"lz4": lz4_stream.MAGIC, "lzf": _LZF, "snappy": _SNAPPY, "zstd": _ZSTD}


class CannotUnpack(Exception):
    """The codec's library is not installed; the message says which."""


def codec_of(data: bytes) -> str:
    """Return Spark's name of the codec. Raises CheckpointDamaged."""
    if not data:
        raise CheckpointDamaged("empty")
    for name, magic in _MAGICS.items():
        if data.startswith(magic[: len(data)]):
            return name
    raise CheckpointDamaged("compressed with no codec that Spark knows")


def unpack(data: bytes) -> bytes:
    """Return the unpacked data. Raises CheckpointDamaged, CheckpointTooNew, CannotUnpack."""
    codec = codec_of(data)
    if codec == "lz4":
        return lz4_stream.decompress(data)
    pieces: list[bytes] = []
    size = 0
    for piece in _UNPACKERS[codec](data):
        size += len(piece)
        if size > checkpoint_contents_bytes_max:
            raise CheckpointDamaged(f"it holds more than {checkpoint_contents_bytes_max} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _arrow(codec: str) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise CannotUnpack(
            f"compressed with {codec}, which pyarrow unpacks: pip install 'peacefs[spark]' to verify it"
        ) from None
    return pyarrow


def _zstd(data: bytes) -> Iterator[bytes]:
    arrow = _arrow("zstd")
    try:
        with arrow.CompressedInputStream(arrow.BufferReader(data), "zstd") as stream:
            while piece := stream.read(_ZSTD_PIECE_BYTES):
                yield piece
    except (OSError, arrow.ArrowException) as fault:
        raise CheckpointDamaged(f"no whole Zstandard frames: {fault}") from None


def _snappy(data: bytes) -> Iterator[bytes]:
    source = DataInput(data)
    while not source.at_end:
        if data.startswith(_SNAPPY, source.position):
            source.take(len(_SNAPPY))
            version, compatible = source.int(), source.int()
            if min(version, compatible) > _SNAPPY_VERSION:
                raise CheckpointTooNew(f"snappy-java's format {version}; this program knows {_SNAPPY_VERSION}")
            continue
        yield unpack_snappy_block(source.take(source.int()))


def unpack_snappy_block(block: bytes) -> bytes:
    """Unpack one block without a header. Raises CheckpointDamaged, CannotUnpack."""
    arrow = _arrow("snappy")
    length = _snappy_length(block)
    if length > checkpoint_contents_bytes_max:
        raise CheckpointDamaged(f"a Snappy block that would hold {length} bytes")
    try:
        unpacked: bytes = arrow.decompress(block, length, codec="snappy", asbytes=True)
    except (OSError, arrow.ArrowException):
        raise CheckpointDamaged("a Snappy block is damaged") from None
    return unpacked


def _snappy_length(block: bytes) -> int:
    """Return the unpacked length, which the block begins with, seven bits per byte."""
    length = 0
    for place, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return length
    raise CheckpointDamaged("a Snappy block does not say how much it holds")


def _lzf(data: bytes) -> Iterator[bytes]:
    source = DataInput(data)
    while not source.at_end:
        if source.take(2) != _LZF:
            raise CheckpointDamaged(f"no LZF chunk at byte {source.position - 2}")
        kind, packed = source.byte(), source.short() & 0xFFFF
        if kind == _LZF_RAW:
            yield source.take(packed)
        elif kind == _LZF_PACKED:
            length = source.short() & 0xFFFF
            yield unpack_lzf(source.take(packed), length)
        else:
            raise CheckpointDamaged(f"an LZF chunk of the unknown kind {kind}")


def unpack_lzf(block: bytes, length: int) -> bytes:
    """Unpack one LZF block. Raises CheckpointDamaged unless it yields `length` bytes."""
    out = bytearray()
    position = 0
    try:
        while position < len(block):
            control = block[position]
            position += 1
            if control < 32:
                literals = block[position : position + control + 1]
                if len(literals) != control + 1:
                    raise CheckpointDamaged("an LZF block ends within its literals")
                out += literals
                position += control + 1
                continue
            matched = control >> 5
            if matched == 7:
                matched += block[position]
                position += 1
            start = len(out) - ((control & 31) << 8 | block[position]) - 1
            position += 1
            matched += 2
            if start < 0 or len(out) + matched > length:
                raise CheckpointDamaged("an LZF block refers to what it does not hold")
            pattern = out[start : start + matched]
            out += (pattern * (matched // len(pattern) + 1))[:matched]
    except IndexError:
        raise CheckpointDamaged("an LZF block is cut short") from None
    if len(out) != length:
        raise CheckpointDamaged(f"an LZF block holds {len(out)} bytes, not {length}")
    return bytes(out)


_UNPACKERS = {"lzf": _lzf, "snappy": _snappy, "zstd": _zstd}
