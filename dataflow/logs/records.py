"""Records of a stream log: bytes to rows and back. No I/O.

0   2  magic "sl"
2   1  format, 1
3   1  kind: 0 a schema, 1 rows
4   4  length of the payload
8   4  number of rows
12  8  sequence number of the first row; the others follow without gaps
20  8  earliest time of a row, microseconds since 1970
28  8  latest time
36  4  CRC32C of the 36 bytes before it and of the payload
40     payload: an Arrow IPC message, the schema or one record batch without it
end 4  length of the whole record, for those who read backwards

A segment begins with a record of the schema, so that it can be read by itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import pyarrow as pa
import pyarrow.compute
from crc32c import crc32c

from peacefs.dataflow.model.batches import Batch
from peacefs.protocol.errors import LogDamaged

_HEAD = struct.Struct(">2sBBIIqqq")
_CHECKSUM = struct.Struct(">I")
_LENGTH = struct.Struct(">I")
_MAGIC = b"sl"
_FORMAT = 1
# The schema's metadata say which column holds the times.
_TIME = b"peacefs.time"
HEAD_BYTES: Final = _HEAD.size + _CHECKSUM.size
TRAILER_BYTES: Final = _LENGTH.size


class Kind(IntEnum):
    SCHEMA = 0
    ROWS = 1


@dataclass(frozen=True, slots=True)
class RecordHead:
    """The beginning of a record: where it is, and which rows it has."""

    kind: Kind
    offset: int
    payload_bytes: int
    rows: int
    first: int
    earliest_us: int
    latest_us: int
    checksum: int

    @property
    def last(self) -> int:
        return self.first + self.rows - 1

    @property
    def end(self) -> int:
        return self.offset + HEAD_BYTES + self.payload_bytes + TRAILER_BYTES


def schema_record(schema: pa.Schema, time: str) -> bytes:
    payload = bytes(schema.with_metadata({_TIME: time}).serialize())
    return _record(Kind.SCHEMA, 0, 0, 0, 0, payload)


def time_column(schema: pa.Schema) -> str:
    """Return the name of the time column of a schema that was read from a segment."""
    return str(schema.metadata[_TIME].decode())


def rows_record(batch: Batch, time: str) -> bytes:
    """Return the record of a batch; `time` names its time column."""
    extent = pyarrow.compute.min_max(batch.rows.column(time).cast(pa.int64())).as_py()
    payload = bytes(batch.rows.serialize())
    return _record(Kind.ROWS, batch.rows.num_rows, batch.first, extent["min"], extent["max"], payload)


def read_schema(data: memoryview) -> tuple[pa.Schema, int] | None:
    """Return the schema at the beginning of a segment and where its record ends; None if it is not whole."""
    head = read_head(data, 0)
    if head is None or head.kind is not Kind.SCHEMA or not is_whole(data, head):
        return None
    return pa.ipc.read_schema(pa.py_buffer(_payload(data, head))), head.end


def read_head(data: memoryview, offset: int) -> RecordHead | None:
    """Return what stands at an offset, unverified; None if it is no beginning of a record."""
    if offset + HEAD_BYTES > len(data):
        return None
    magic, form, kind, payload_bytes, rows, first, earliest, latest = _HEAD.unpack_from(data, offset)
    if magic != _MAGIC or form != _FORMAT or kind not in (Kind.SCHEMA, Kind.ROWS):
        return None
    (checksum,) = _CHECKSUM.unpack_from(data, offset + _HEAD.size)
    return RecordHead(Kind(kind), offset, payload_bytes, rows, first, earliest, latest, checksum)


def is_whole(data: memoryview, head: RecordHead) -> bool:
    if head.end > len(data):
        return False
    start = data[head.offset : head.offset + _HEAD.size]
    (length,) = _LENGTH.unpack_from(data, head.end - TRAILER_BYTES)
    return length == head.end - head.offset and crc32c(_payload(data, head), crc32c(start)) == head.checksum


def read_rows(data: memoryview, head: RecordHead, schema: pa.Schema) -> Batch:
    rows = pa.ipc.read_record_batch(pa.py_buffer(_payload(data, head)), schema)
    return Batch(head.first, rows)


def whole_records(data: memoryview) -> Iterator[RecordHead]:
    """Yield the records of a segment in order, up to the first that is not whole."""
    offset = 0
    while (head := read_head(data, offset)) is not None and is_whole(data, head):
        yield head
        offset = head.end


def records_backwards(data: memoryview, end: int) -> Iterator[RecordHead]:
    """Yield the records that end at or before `end`, the last first. Raises LogDamaged if there is no way back."""
    while end > 0:
        (length,) = _LENGTH.unpack_from(data, end - TRAILER_BYTES) if end >= TRAILER_BYTES else (0,)
        head = read_head(data, end - length) if HEAD_BYTES < length <= end else None
        if head is None or head.end != end or not is_whole(data, head):
            raise LogDamaged(f"the record that ends at byte {end} is not what was written")
        yield head
        end = head.offset


def torn_at(data: memoryview) -> int | None:
    """Return where a torn tail begins; None if the last record is whole.

    A tail is torn by a writer that died in the middle of it. Raises LogDamaged if a whole record stands behind
    bytes that are none: those were written and are rotten, and cutting there would lose what is behind.
    """
    end = max((head.end for head in whole_records(data)), default=0)
    if end == len(data):
        return None
    at = end
    while (at := bytes(data).find(_MAGIC, at + 1)) != -1:
        head = read_head(data, at)
        if head is not None and is_whole(data, head):
            raise LogDamaged(f"bytes {end} to {at} are no record, and whole ones follow")
    return end


def _record(kind: Kind, rows: int, first: int, earliest: int, latest: int, payload: bytes) -> bytes:
    start = _HEAD.pack(_MAGIC, _FORMAT, kind, len(payload), rows, first, earliest, latest)
    checksum = _CHECKSUM.pack(crc32c(payload, crc32c(start)))
    length = _LENGTH.pack(HEAD_BYTES + len(payload) + TRAILER_BYTES)
    return b"".join((start, checksum, payload, length))


def _payload(data: memoryview, head: RecordHead) -> memoryview:
    begin = head.offset + HEAD_BYTES
    return data[begin : begin + head.payload_bytes]
