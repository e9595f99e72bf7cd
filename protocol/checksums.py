"""CRC32C of blocks of 64 KiB: computed once by the writer, sent with the data, verified by every hop.

Block checksums are sent and stored packed: 4 bytes each, big-endian. The checksum of a chunk is the CRC32C of its
packed block checksums, so no hop needs a second pass over the data to compute it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from crc32c import crc32c

from peacefs.protocol.limits import checksum_block_bytes

from .errors import ChecksumMismatch

_SUM = struct.Struct(">I")
Bytes = bytes | bytearray | memoryview


def block_checksums(data: Bytes) -> bytes:
    """Return the packed checksums of `data`, which starts on a block boundary; the last block may be short."""
    if 0 < len(data) <= checksum_block_bytes:
        return _SUM.pack(crc32c(data))
    view = memoryview(data)
    sums = [crc32c(view[at : at + checksum_block_bytes]) for at in range(0, len(view), checksum_block_bytes)]
    return struct.pack(f">{len(sums)}I", *sums)


def verify_blocks(data: Bytes, packed: Bytes, what: str | Callable[[], str]) -> None:
    """Verify `data`. Raises ChecksumMismatch, which names `what` and the offset of the first bad block."""
    actual = block_checksums(data)
    if actual == packed:
        return
    if not isinstance(what, str):
        what = what()
    if len(actual) != len(packed):
        raise ChecksumMismatch(f"{what}: {len(packed) // 4} checksums for {len(actual) // 4} blocks")
    for at in range(0, len(actual), 4):
        if actual[at : at + 4] != bytes(packed[at : at + 4]):
            raise ChecksumMismatch(f"{what}: checksum mismatch in the block at {at // 4 * checksum_block_bytes}")


def split_sums(packed: bytes, length: int) -> tuple[bytes, bytes]:
    """Split packed checksums after the first `length` bytes of data, a multiple of the block size."""
    end = length // checksum_block_bytes * _SUM.size
    return packed[:end], packed[end:]


def sums_between(packed: bytes, start: int, end: int) -> bytes:
    """Return the packed checksums of the blocks that contain the bytes `start` to `end` (exclusive)."""
    last = -(-end // checksum_block_bytes)
    return packed[start // checksum_block_bytes * _SUM.size : last * _SUM.size]


def chunk_checksum(packed: Bytes) -> int:
    """Return the checksum of a chunk, given its packed block checksums."""
    return int(crc32c(packed))
