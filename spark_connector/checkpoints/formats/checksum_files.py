"""Read and verify the checksum files beside a checkpoint's files.

Hadoop's local file system writes `.<name>.crc`: a CRC-32 of every 512 bytes. In format 2 and later Spark writes
`<name>.crc`: one CRC-32C of the whole file, as JSON.
"""

from __future__ import annotations

import struct
import zlib
from typing import Protocol

import crc32c
import msgspec

from peacefs.protocol.errors import CheckpointAltered, CheckpointDamaged

_HADOOP_MAGIC = b"crc\x00"
_MASK = 0xFFFFFFFF


class Checker(Protocol):
    """Verify a file that is fed piece by piece."""

    def update(self, data: bytes) -> None: ...

    def finish(self) -> None:
        """Raise CheckpointDamaged unless the data match."""
        ...


class SparkChecksum(msgspec.Struct, frozen=True, rename="camel"):
    """A checksum file that Spark writes as JSON: CRC-32C and length of the whole file."""

    algorithm: str
    value: int
    main_file_size: int


def parse_checksum(data: bytes) -> Checker:
    """Parse a checksum file of either kind. Raises CheckpointDamaged."""
    if data.startswith(_HADOOP_MAGIC):
        return HadoopChecker(data)
    try:
        wanted = msgspec.json.decode(data, type=SparkChecksum)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointDamaged(f"the checksum file cannot be read: {error}") from None
    if wanted.algorithm != "CRC32C":
        raise CheckpointDamaged(f"the checksum file is of the unknown algorithm {wanted.algorithm!r}")
    return SparkChecker(wanted)


class SparkChecker:
    """Compare a file with a `SparkChecksum`."""

    def __init__(self, wanted: SparkChecksum) -> None:
        self._wanted = wanted
        self._value = 0
        self._length = 0

    def update(self, data: bytes) -> None:
        self._value = crc32c.crc32c(data, self._value)
        self._length += len(data)

    def finish(self) -> None:
        if self._length != self._wanted.main_file_size:
            raise CheckpointDamaged(f"{self._length} bytes long, not {self._wanted.main_file_size}")
        if self._value != self._wanted.value & _MASK:
            raise CheckpointDamaged("it does not match the checksum beside it")


class HadoopChecker:
    """Compare a file with Hadoop's checksums. Spark itself does not, for the files of a checkpoint.

    Raises CheckpointDamaged if the checksum file is malformed, CheckpointAltered if the data do not match.
    """

    def __init__(self, data: bytes) -> None:
        if len(data) < 8 or (len(data) - 8) % 4 or (block_bytes := int.from_bytes(data[4:8], "big")) < 1:
            raise CheckpointDamaged("the checksum file is cut short")
        self._block_bytes = block_bytes
        self._wanted = struct.unpack(f">{(len(data) - 8) // 4}I", data[8:])
        self._rest = b""
        self._block = 0

    def update(self, data: bytes) -> None:
        data = self._rest + data
        whole = len(data) - len(data) % self._block_bytes
        for start in range(0, whole, self._block_bytes):
            self._check(data[start : start + self._block_bytes])
        self._rest = data[whole:]

    def finish(self) -> None:
        if self._rest:
            self._check(self._rest)
        if self._block != len(self._wanted):
            raise CheckpointAltered(f"{len(self._wanted)} checksums lie beside {self._block} blocks of it")

    def _check(self, block: bytes) -> None:
        if self._block >= len(self._wanted) or zlib.crc32(block) != self._wanted[self._block]:
            raise CheckpointAltered("it does not match the checksum beside it")
        self._block += 1
