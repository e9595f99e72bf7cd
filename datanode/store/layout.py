"""The layout of the chunk store's directory, byte for byte. Pure: names and formats, no I/O.

    identity.json, lock       the owner of the directory (`disks.identity`)
    scrubbing.json            the progress of the scrubber
    staging/                  chunks being written; emptied at start
    chunks/<2 hex>/<name>     one sealed chunk per file; the name is chunk-version-length, in hexadecimal
    segments/<name>.segment   many small chunks per file; the name is number-salt, in hexadecimal
    damaged/                  files whose name and content disagree, kept for inspection

A chunk file is its data, then the packed checksums of its blocks, then a footer of 44 bytes:

    0   8  magic "pfschunk"
    8   2  format, 1
    10  2  reserved, 0
    12  8  chunk id
    20  8  version
    28  8  length of the data
    36  4  block size
    40  4  CRC32C of the checksums and of the 40 bytes before it

A segment is a sequence of records, each a header of 40 bytes, the packed checksums of its blocks, and its data:

    0   4  magic "pfs1" (the digit is the format)
    4   1  kind: 1 chunk, 2 tombstone, 3 seal
    5   3  reserved, 0
    8   8  chunk id
    16  8  version
    24  4  length of the data
    28  4  segment of the record that a tombstone kills
    32  4  offset of the record that a tombstone kills
    36  4  CRC32C of the 36 bytes before it and of the checksums, begun with the segment's salt

A tombstone refers to one record by its place, so tombstones and records may be read in any order. A seal is the
last record of a segment whose records had all been fsynced before; a segment without a seal is verified in full at
start. The salt is a random number that appears only in the segment's name. A search for records after damage
therefore does not mistake data that looks like a record, or the former contents of a disk block, for a record.

All numbers are big-endian.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import ChecksumMismatch
from peacefs.protocol.ids import ChunkId, Version, show
from peacefs.protocol.limits import checksum_block_bytes, small_chunk_bytes_max

_CRC = struct.Struct(">I")

# -- names -----------------------------------------------------------------------------------------


class StorePaths:
    """Paths of one store directory."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.scrubbing = f"{directory}/scrubbing.json"
        self.staging = f"{directory}/staging"
        self.chunks = f"{directory}/chunks"
        self.segments = f"{directory}/segments"
        self.damaged = f"{directory}/damaged"

    def folder(self, chunk: ChunkId) -> str:
        """Return the directory for the chunk's file, if it is large."""
        return f"{self.chunks}/{chunk & 0xFF:02x}"

    def chunk_file(self, chunk: ChunkId, version: Version, length: int) -> str:
        return f"{self.folder(chunk)}/{chunk:016x}-{version:016x}-{length:x}"

    def segment_file(self, number: int, salt: int) -> str:
        return f"{self.segments}/{number:08x}-{salt:08x}.segment"


def parse_chunk_file_name(name: str) -> tuple[ChunkId, Version, int] | None:
    """Return chunk, version and length; None unless `chunk_file` could return this name."""
    try:
        chunk, version, length = (int(part, 16) for part in name.split("-"))
    except ValueError:
        return None
    return (chunk, version, length) if name == f"{chunk:016x}-{version:016x}-{length:x}" else None


def parse_segment_file_name(name: str) -> tuple[int, int] | None:
    """Return number and salt; None unless `segment_file` could return this name."""
    try:
        number, salt = (int(part, 16) for part in name.removesuffix(".segment").split("-"))
    except ValueError:
        return None
    return (number, salt) if name == f"{number:08x}-{salt:08x}.segment" else None


def sums_bytes(length: int) -> int:
    """Return the size of the packed block checksums of `length` bytes of data."""
    return -(-length // checksum_block_bytes) * 4


# -- chunk files -----------------------------------------------------------------------------------

_FOOTER = struct.Struct(">8sHHQQQI")
_FOOTER_MAGIC = b"pfschunk"
_FOOTER_FORMAT = 1
FOOTER_BYTES = _FOOTER.size + _CRC.size


def chunk_file_bytes(length: int) -> int:
    """Return the file size of a chunk with `length` bytes of data."""
    return length + sums_bytes(length) + FOOTER_BYTES


def pack_footer(chunk: ChunkId, version: Version, length: int, sums: Bytes) -> bytes:
    """Pack the footer of a chunk file: its owner, and a checksum over the owner and the block checksums."""
    body = _FOOTER.pack(_FOOTER_MAGIC, _FOOTER_FORMAT, 0, chunk, version, length, checksum_block_bytes)
    return body + _CRC.pack(crc32c(body, crc32c(sums)))


def unpack_tail(tail: Bytes, chunk: ChunkId, version: Version, length: int) -> bytes:
    """Return the packed block checksums, given the checksums and footer of a chunk file.

    Raises ChecksumMismatch unless they are complete and belong to exactly this chunk, version and length.
    """
    sums = bytes(tail[:-FOOTER_BYTES])
    if len(tail) != sums_bytes(length) + FOOTER_BYTES or tail[-FOOTER_BYTES:] != pack_footer(
        chunk, version, length, sums
    ):
        raise ChecksumMismatch(f"the footer of {describe(chunk, version)} is damaged")
    return sums


def describe(chunk: ChunkId, version: Version) -> str:
    """Return a replica's name for messages."""
    return f"chunk {show(chunk)} version {show(version)}"


# -- segment records -------------------------------------------------------------------------------

_RECORD = struct.Struct(">4sB3xQQIII")
RECORD_MAGIC = b"pfs1"
HEADER_BYTES = _RECORD.size + _CRC.size
#: Maximum length of a header and the checksums that follow it.
HEADER_AND_SUMS_BYTES_MAX = HEADER_BYTES + sums_bytes(small_chunk_bytes_max)


class RecordKind(IntEnum):
    CHUNK = 1
    TOMBSTONE = 2
    SEAL = 3


_KINDS = {int(kind): kind for kind in RecordKind}


class Record(NamedTuple):
    """A record's header. For a tombstone, `segment` and `offset` are the place of the record it kills."""

    kind: RecordKind
    chunk: ChunkId = 0
    version: Version = 0
    length: int = 0
    segment: int = 0
    offset: int = 0


def record_bytes(length: int) -> int:
    """Return the size of a record with `length` bytes of data."""
    return HEADER_BYTES + sums_bytes(length) + length


def pack_record(record: Record, sums: Bytes, salt: int) -> bytes:
    """Return header and checksums; the data follows them."""
    body = _RECORD.pack(RECORD_MAGIC, *record)
    return b"".join((body, _CRC.pack(crc32c(sums, crc32c(body, salt))), sums))


def unpack_record(buffer: Bytes, at: int, salt: int) -> Record | None:
    """Return the record with its header at `at`; None if header or checksums are missing, damaged or cut off."""
    if len(buffer) - at < HEADER_BYTES:
        return None
    magic, kind, *fields = _RECORD.unpack_from(buffer, at)
    if magic != RECORD_MAGIC or kind not in _KINDS or fields[2] > small_chunk_bytes_max:
        return None
    record = Record(_KINDS[kind], *fields)
    sums_at = at + HEADER_BYTES
    view = memoryview(buffer)
    sums = view[sums_at : sums_at + sums_bytes(record.length)]
    expected = crc32c(sums, crc32c(view[at : at + _RECORD.size], salt))
    return record if _CRC.unpack_from(buffer, at + _RECORD.size)[0] == expected else None
