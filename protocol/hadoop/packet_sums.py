"""Checksums of packets and blocks, of the type and unit that a client or the datanode chooses. Pure."""

from __future__ import annotations

import functools
import hashlib
import struct
import zlib
from collections.abc import Callable
from typing import Final

from crc32c import crc32c

from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import BadRequest, ChecksumMismatch
from peacefs.protocol.limits import MIB

from .datatransfer_pb2 import ChecksumProto
from .hdfs_pb2 import CHECKSUM_CRC32, CHECKSUM_CRC32C, CHECKSUM_NULL, ChecksumTypeProto

SUM_BYTES: Final = 4
#: HDFS's unit (dfs.bytes-per-checksum), in which it compares blocks.
HDFS_UNIT: Final = 512
unit_bytes_max: Final = 1 * MIB

_SUM: Final = struct.Struct(">I")
_UNITS_TOGETHER: Final = 512
_CRCS: Final[dict[int, Callable[[Bytes], int]]] = {CHECKSUM_CRC32: zlib.crc32, CHECKSUM_CRC32C: crc32c}


@functools.lru_cache(maxsize=64)
def _structs(unit: int, count: int) -> tuple[struct.Struct, struct.Struct]:
    """Return what cuts data into units, and what packs their checksums: a loop in Python would take longer."""
    return struct.Struct(f"{unit}s" * count), struct.Struct(f">{count}I")


class PacketSums:
    """Checksums of one type, each over `unit` bytes. NULL has none."""

    def __init__(self, kind: ChecksumTypeProto, unit: int) -> None:
        """Use this type over units of this size. Raises BadRequest if there is no such type or unit."""
        if kind != CHECKSUM_NULL and kind not in _CRCS:
            raise BadRequest(f"there is no checksum of type {kind}")
        if not 0 < unit <= unit_bytes_max:
            raise BadRequest(f"checksums over {unit} bytes each; from 1 to {unit_bytes_max} are allowed")
        self.kind = kind
        self.unit = unit
        self._crc = _CRCS.get(kind)

    @classmethod
    def requested(cls, wanted: ChecksumProto) -> PacketSums:
        """Return the checksums that a writer announces. Raises BadRequest."""
        return cls(wanted.type, wanted.bytesPerChecksum)

    def described(self) -> ChecksumProto:
        return ChecksumProto(type=self.kind, bytesPerChecksum=self.unit)

    def packed_bytes(self, length: int) -> int:
        """Return the size of the checksums of `length` bytes of data."""
        return 0 if self._crc is None else -(-length // self.unit) * SUM_BYTES

    def of(self, data: Bytes) -> bytes:
        """Return the packed checksums of data that begins with a unit."""
        crc, unit = self._crc, self.unit
        if crc is None:
            return b""
        whole, sums = len(data) // unit, []
        for at in range(0, whole, _UNITS_TOGETHER):
            units, packed = _structs(unit, min(_UNITS_TOGETHER, whole - at))
            sums.append(packed.pack(*map(crc, units.unpack_from(data, at * unit))))
        if len(data) > whole * unit:
            sums.append(_SUM.pack(crc(memoryview(data)[whole * unit :])))
        return b"".join(sums)

    def verify(self, data: Bytes, packed: Bytes, offset: int) -> None:
        """Verify a packet's data, which begins at `offset` of its block.

        Raises BadRequest for a wrong number of checksums, ChecksumMismatch for a wrong one.
        """
        wanted_bytes = self.packed_bytes(len(data))
        if len(packed) != wanted_bytes:
            raise BadRequest(
                f"a packet with {len(data)} bytes of data has {len(packed)} bytes of checksums, not {wanted_bytes}"
            )
        actual = self.of(data)
        if actual != packed:
            at = next(at for at in range(0, wanted_bytes, SUM_BYTES) if actual[at:][:4] != bytes(packed[at:][:4]))
            raise ChecksumMismatch(f"checksum mismatch at byte {offset + at // SUM_BYTES * self.unit} of a packet")


class BlockDigest:
    """Computes what HDFS compares blocks by, from their bytes in order: an MD5 of CRC32Cs, or one CRC32C."""

    def __init__(self) -> None:
        self._sums = PacketSums(CHECKSUM_CRC32C, HDFS_UNIT)
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._crc = 0
        self._rest = b""

    def take_in(self, piece: Bytes) -> None:
        self._crc = crc32c(piece, self._crc)
        data = self._rest + bytes(piece)
        whole = len(data) - len(data) % HDFS_UNIT
        self._md5.update(self._sums.of(data[:whole]))
        self._rest = data[whole:]

    def md5_of_sums(self) -> bytes:
        """Return the MD5 of the CRC32Cs of 512 bytes each."""
        digest = self._md5.copy()
        digest.update(self._sums.of(self._rest))
        return digest.digest()

    def composite_crc(self) -> bytes:
        """Return the CRC32C of all bytes."""
        return struct.pack(">I", self._crc)
