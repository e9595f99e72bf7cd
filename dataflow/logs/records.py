"""The encoding of records of a stream log. No I/O.

0   2  magic "sl"
2   1  format, 1
3   1  kind: 0 a schema, 1 rows, 2 rows of a transaction, 3 the end of a transaction
4   4  length of the payload
8   4  number of rows
12  8  sequence number of the first row, without gaps to the others; without rows, the number of the next row
20  8  earliest time of a row, microseconds since 1970
28  8  latest time of a row; without rows, the latest time in the whole log before it
36  4  CRC32C of the 36 bytes before it and of the payload
40     payload: an Arrow IPC message (the schema, or one record batch without it); for the end of a transaction,
       JSON: the latest epoch of each writer that has ever committed one
end 4  length of the whole record, for reading backwards

A segment begins with a record of the schema, so that it can be read by itself. Rows of a transaction (kind 2)
count only if its end (kind 3) follows in the same segment. If a log has epochs, each segment repeats them after
the schema, so that older segments can be deleted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute
from crc32c import crc32c

from peacefs.dataflow.model.batches import Batch
from peacefs.protocol.errors import LogDamaged

_HEAD = struct.Struct(">2sBBIIqqq")
_CHECKSUM = struct.Struct(">I")
_WHOLE_HEAD = struct.Struct(_HEAD.format + "I")
_LENGTH = struct.Struct(">I")
_MAGIC = b"sl"
_FORMAT = 1
# The schema's metadata name the column with the times.
_TIME = b"peacefs.time"
HEAD_BYTES: Final = _HEAD.size + _CHECKSUM.size
TRAILER_BYTES: Final = _LENGTH.size


class Kind(IntEnum):
    SCHEMA = 0
    ROWS = 1
    PART = 2
    EPOCH = 3


_KINDS: Final = tuple(Kind)
_LAST_KIND: Final = int(max(Kind))


class RecordHead(NamedTuple):
    """The head of a record: where it is, and which rows it has."""

    kind: Kind
    offset: int
    end: int
    rows: int
    first: int
    earliest_us: int
    latest_us: int
    checksum: int

    @property
    def last(self) -> int:
        return self.first + self.rows - 1


def schema_record(schema: pa.Schema, time: str, following: int, reached_us: int) -> bytes:
    """Return a segment's first record. `following` is the next row; `reached_us` is the latest time so far."""
    payload = bytes(schema.with_metadata({_TIME: time}).serialize())
    return _record(Kind.SCHEMA, 0, following, 0, reached_us, payload)


def epoch_record(epochs: Mapping[str, int], following: int, reached_us: int) -> bytes:
    """Return the end of a transaction. `following` is the next row; `reached_us` is the latest time so far."""
    return _record(Kind.EPOCH, 0, following, 0, reached_us, msgspec.json.encode(epochs))


def read_epochs(data: memoryview, head: RecordHead) -> dict[str, int]:
    return msgspec.json.decode(_payload(data, head), type=dict[str, int])


def time_column(schema: pa.Schema) -> str:
    """Return the name of the time column of a schema that was read from a segment."""
    return str(schema.metadata[_TIME].decode())


def rows_record(batch: Batch, time: str, kind: Kind = Kind.ROWS) -> tuple[bytes, int]:
    """Return the record of a batch, and the latest time in it. `time` names the time column."""
    extent = pyarrow.compute.min_max(batch.rows.column(time).cast(pa.int64())).as_py()
    payload = memoryview(batch.rows.serialize())
    return _record(kind, batch.rows.num_rows, batch.first, extent["min"], extent["max"], payload), extent["max"]


def read_schema(data: memoryview) -> tuple[pa.Schema, RecordHead] | None:
    """Return the schema at the beginning of a segment, and its record; None if the record is incomplete."""
    head = read_head(data, 0)
    if head is None or head.kind is not Kind.SCHEMA or not is_whole(data, head):
        return None
    return pa.ipc.read_schema(pa.py_buffer(_payload(data, head))), head


def read_head(data: memoryview, offset: int) -> RecordHead | None:
    """Parse the head at an offset, without verification; None if it is not the head of a record."""
    if offset + HEAD_BYTES > len(data):
        return None
    magic, form, kind, payload_bytes, rows, first, earliest, latest, checksum = _WHOLE_HEAD.unpack_from(
        data, offset
    )
    if magic != _MAGIC or form != _FORMAT or kind > _LAST_KIND:
        return None
    end = offset + HEAD_BYTES + payload_bytes + TRAILER_BYTES
    return RecordHead(_KINDS[kind], offset, end, rows, first, earliest, latest, checksum)


def is_whole(data: memoryview, head: RecordHead) -> bool:
    if not _has_its_length(data, head):
        return False
    start = data[head.offset : head.offset + _HEAD.size]
    return crc32c(_payload(data, head), crc32c(start)) == head.checksum


def read_rows(data: memoryview, head: RecordHead, schema: pa.Schema) -> Batch:
    rows = pa.ipc.read_record_batch(pa.py_buffer(_payload(data, head)), schema)
    return Batch(head.first, rows)


def whole_records(data: memoryview) -> Iterator[RecordHead]:
    """Yield the records of a segment in order, up to the first incomplete one."""
    offset = 0
    while (head := read_head(data, offset)) is not None and is_whole(data, head):
        yield head
        offset = head.end


def committed_records(data: memoryview) -> Iterator[RecordHead]:
    """Yield the complete records, except those of a transaction that has no end."""
    held: list[RecordHead] = []
    for head in whole_records(data):
        held.append(head)
        if head.kind is not Kind.PART:
            yield from held
            held.clear()


def last_record(data: memoryview) -> RecordHead | None:
    """Return the last record of `data`; None if it is incomplete or a transaction is open."""
    if len(data) < TRAILER_BYTES:
        return None
    (length,) = _LENGTH.unpack_from(data, len(data) - TRAILER_BYTES)
    head = read_head(data, len(data) - length) if HEAD_BYTES < length <= len(data) else None
    if head is None or head.end != len(data) or head.kind is Kind.PART or not is_whole(data, head):
        return None
    return head


def records_backwards(data: memoryview, end: int) -> Iterator[RecordHead]:
    """Yield the records that end at or before `end`, last first. Raises LogDamaged at bytes that are no record."""
    while end > 0:
        (length,) = _LENGTH.unpack_from(data, end - TRAILER_BYTES) if end >= TRAILER_BYTES else (0,)
        head = read_head(data, end - length) if HEAD_BYTES < length <= end else None
        if head is None or head.end != end or not is_whole(data, head):
            raise LogDamaged(f"the record that ends at byte {end} is not what was written")
        yield head
        end = head.offset


def torn_at(data: memoryview, base: int = 0) -> int | None:
    """Return where a torn tail begins; None if the last record is complete and no transaction is open.

    `data` begins at byte `base` of a segment, for error messages. A tail is torn if its writer died while writing
    it. Raises LogDamaged if a complete record follows bytes that are no record, or if a record has the correct
    length and a wrong checksum. Those bytes were written and became corrupt, and cutting there would lose the
    records after them.
    """
    end = committed = 0
    for head in whole_records(data):
        end = head.end
        if head.kind is not Kind.PART:
            committed = end
    if end == len(data):
        return None if committed == end else committed
    rotten = read_head(data, end)
    if rotten is not None and _has_its_length(data, rotten):
        raise LogDamaged(f"the record at byte {base + end} does not match its checksum")
    rest, at = bytes(data[end:]), 0
    while (at := rest.find(_MAGIC, at + 1)) != -1:
        head_behind = read_head(data, end + at)
        if head_behind is not None and is_whole(data, head_behind):
            raise LogDamaged(f"bytes {base + end} to {base + end + at} are no record, and whole ones follow")
    return committed


def _has_its_length(data: memoryview, head: RecordHead) -> bool:
    if head.end > len(data):
        return False
    (length,) = _LENGTH.unpack_from(data, head.end - TRAILER_BYTES)
    return bool(length == head.end - head.offset)


def _record(kind: Kind, rows: int, first: int, earliest: int, latest: int, payload: bytes | memoryview) -> bytes:
    start = _HEAD.pack(_MAGIC, _FORMAT, kind, len(payload), rows, first, earliest, latest)
    checksum = _CHECKSUM.pack(crc32c(payload, crc32c(start)))
    length = _LENGTH.pack(HEAD_BYTES + len(payload) + TRAILER_BYTES)
    return b"".join((start, checksum, payload, length))


def _payload(data: memoryview, head: RecordHead) -> memoryview:
    return data[head.offset + HEAD_BYTES : head.end - TRAILER_BYTES]
