"""The checksum of a file as HDFS computes it: an MD5 of the blocks' MD5s of the CRC32Cs of 512 bytes each. Pure.

It depends on the contents and the block size, not on the chunks. So a copy can be compared with its source, here
or in HDFS. With HDFS's defaults, a file of one block (up to 64 MiB here) has the same checksum in both systems.
"""

from __future__ import annotations

import hashlib
import struct

from crc32c import crc32c

from peacefs.protocol.checksums import Bytes

_SUMMED_BYTES = 512
#: HDFS also hashes the unused part of the buffer that contains the MD5s. Its size is 32 bytes, doubled as needed.
_BUFFER_BYTES = 32


class FileChecksum:
    """Computes the checksum of a file that is fed from its start. `block_bytes` is a multiple of 512."""

    def __init__(self, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self._blocks = bytearray()
        self._in_block = 0
        self._sums = hashlib.md5(usedforsecurity=False)
        #: The first bytes of an incomplete unit of 512 bytes.
        self._rest = b""

    def take_in(self, piece: Bytes) -> None:
        with memoryview(piece) as view:
            at = 0
            while at < len(view):
                end = min(len(view), at + self._block_bytes - self._in_block)
                self._sum(view[at:end])
                self._in_block += end - at
                at = end
                if self._in_block == self._block_bytes:
                    self._end_block()

    def told(self) -> tuple[str, bytes]:
        """Return HDFS's name of the algorithm, and the checksum. No data may be fed after this."""
        if self._in_block:
            self._end_block()
        count = len(self._blocks) // 16
        if count == 0:
            return "MD5-of-0MD5-of-0CRC32", _packed(0, 0, bytes(_BUFFER_BYTES))
        per_block = self._block_bytes // _SUMMED_BYTES if count > 1 else 0
        size = _BUFFER_BYTES
        while size < len(self._blocks):
            size *= 2
        hashed = bytes(self._blocks).ljust(size, b"\0")
        return f"MD5-of-{per_block}MD5-of-{_SUMMED_BYTES}CRC32C", _packed(_SUMMED_BYTES, per_block, hashed)

    def _sum(self, part: memoryview) -> None:
        if self._rest:
            missing = _SUMMED_BYTES - len(self._rest)
            self._rest += part[:missing]
            part = part[missing:]
            if len(self._rest) < _SUMMED_BYTES:
                return
            self._add(memoryview(self._rest))
        whole = len(part) // _SUMMED_BYTES * _SUMMED_BYTES
        self._add(part[:whole])
        self._rest = bytes(part[whole:])

    def _add(self, data: memoryview) -> None:
        sums = [crc32c(data[at : at + _SUMMED_BYTES]) for at in range(0, len(data), _SUMMED_BYTES)]
        self._sums.update(struct.pack(f">{len(sums)}I", *sums))

    def _end_block(self) -> None:
        if self._rest:
            self._add(memoryview(self._rest))
        self._blocks += self._sums.digest()
        self._sums = hashlib.md5(usedforsecurity=False)
        self._rest, self._in_block = b"", 0


def _packed(summed_bytes: int, per_block: int, hashed: bytes) -> bytes:
    return struct.pack(">iq", summed_bytes, per_block) + hashlib.md5(hashed, usedforsecurity=False).digest()
