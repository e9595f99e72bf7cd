"""Read and verify LZ4Block streams, in which Spark writes changelogs, deltas and snapshots of state.

A frame consists of `LZ4Block`, a token (method and level), the compressed and the original length, 28 bits of an
xxHash32 of the original, and the data. The last frame is empty. The format is that of lz4-java's
LZ4BlockOutputStream, which no Python package reads; the blocks are the LZ4 project's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import xxhash

from peacefs.protocol.errors import CheckpointDamaged

MAGIC = b"LZ4Block"
_HEADER = struct.Struct("<8sBiiI")
_RAW, _LZ4 = 0x10, 0x20
_SEED = 0x9747B28C
_CHECKSUM_MASK = 0x0FFFFFFF
_BLOCK_BYTES_MAX = 1 << 25


def decompress(data: bytes) -> bytes:
    """Return the stream's contents. Raises CheckpointDamaged unless it is whole and nothing follows."""
    return b"".join(_blocks(data))


def _blocks(data: bytes) -> Iterator[bytes]:
    position = 0
    while True:
        if position + _HEADER.size > len(data):
            raise CheckpointDamaged(f"cut short: ends after {len(data)} bytes, before its end mark")
        magic, token, packed, length, checksum = _HEADER.unpack_from(data, position)
        method = token & 0xF0
        if magic != MAGIC or method not in (_RAW, _LZ4) or not 0 <= length <= _BLOCK_BYTES_MAX or packed < 0:
            raise CheckpointDamaged(f"no LZ4 frame at byte {position}")
        position += _HEADER.size
        if length == 0:
            if packed or checksum:
                raise CheckpointDamaged(f"the end mark at byte {position} holds something")
            if position != len(data):
                raise CheckpointDamaged(f"{len(data) - position} bytes follow its end")
            return
        if position + packed > len(data):
            raise CheckpointDamaged(f"cut short: ends after {len(data)} bytes, within a frame")
        block = data[position : position + packed]
        if method == _LZ4:
            block = decompress_block(block, length)
        if len(block) != length or checksum_of(block) != checksum:
            raise CheckpointDamaged(f"the frame at byte {position - _HEADER.size} does not match its checksum")
        yield block
        position += packed


def checksum_of(contents: bytes) -> int:
    """Return a frame's checksum of its uncompressed contents."""
    return xxhash.xxh32_intdigest(contents, _SEED) & _CHECKSUM_MASK


def decompress_block(block: bytes, length: int) -> bytes:
    """Unpack one LZ4 block. Raises CheckpointDamaged unless it yields `length` bytes."""
    out = bytearray()
    position, end = 0, len(block)
    try:
        while position < end:
            token = block[position]
            position += 1
            literals, position = _extended(token >> 4, block, position)
            if position + literals > end:
                raise CheckpointDamaged("an LZ4 block ends within its literals")
            out += block[position : position + literals]
            position += literals
            if position == end:
                break
            offset = block[position] | block[position + 1] << 8
            matched, position = _extended(token & 15, block, position + 2)
            matched += 4
            start = len(out) - offset
            if offset == 0 or start < 0 or len(out) + matched > length:
                raise CheckpointDamaged("an LZ4 block refers to what it does not hold")
            if offset >= matched:
                out += out[start : start + matched]
            else:
                pattern = bytes(out[start:])
                out += (pattern * (matched // offset + 1))[:matched]
    except IndexError:
        raise CheckpointDamaged("an LZ4 block is cut short") from None
    if len(out) != length:
        raise CheckpointDamaged(f"an LZ4 block holds {len(out)} bytes, not {length}")
    return bytes(out)


def _extended(number: int, block: bytes, position: int) -> tuple[int, int]:
    """Read a length that continues as long as bytes are 255. Return it and the position after it."""
    if number == 15:
        while True:
            byte = block[position]
            position += 1
            number += byte
            if byte != 255:
                break
    return number, position
