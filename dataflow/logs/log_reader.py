"""Readers of logs: from a number or a time, backwards, and following the writer."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from peacefs.dataflow.limits import stream_log_record_bytes, stream_log_tail_bytes
from peacefs.dataflow.model.batches import Batch
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.protocol.errors import FileNotFound, LogDamaged
from peacefs.protocol.limits import MIB

from .records import (
    Kind,
    RecordHead,
    committed_records,
    last_record,
    read_head,
    read_rows,
    read_schema,
    records_backwards,
    time_column,
    torn_at,
)
from .segments import SegmentFile, SegmentStore

# Size of the pieces in which a log is read, and the number of unused buffers that are kept. A piece is small
# enough to be decoded while it is in the processor's cache.
stream_log_read_bytes: Final = 2 * MIB
stream_log_rooms_kept: Final = 2


#: Space for the first part of a record that is split between two pieces. Every record fits, unless a single batch
#: is larger.
_HEADROOM: Final = stream_log_record_bytes + stream_log_tail_bytes


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A place between two records, after row `number`. Segment 0 means that the segment is not known."""

    number: int
    segment: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The state at the end of a log."""

    place: LogPlace
    #: The lowest existing number; 1 if there is none.
    first: int
    #: Bytes after the last complete record, from a writer that died or is still writing.
    torn_bytes: int


@dataclass(frozen=True, slots=True)
class _Head:
    """The beginning of a segment."""

    type: StreamType
    #: The stored schema, with its metadata.
    schema: pa.Schema
    end: int
    reached_us: int


class LogReader:
    """A stream as seen by readers. Rows may become visible a moment before they are durable."""

    def __init__(self, store: SegmentStore, stream: str) -> None:
        self._store = store
        self._stream = stream
        self._heads: dict[int, _Head] = {}
        self._rooms = _Rooms()

    def read(self, after: int = 0, *, upto: int | None = None) -> Iterator[Batch]:
        """Yield the rows with numbers above `after`, up to `upto` or to the present end of the log.

        Raises FileNotFound if some of them were trimmed. Raises LogDamaged at a corrupt record, after the rows
        before it.
        """
        for batch, _ in self.read_places(LogPlace(after), upto=upto):
            yield batch

    def read_places(self, after: LogPlace, *, upto: int | None = None) -> Iterator[tuple[Batch, LogPlace]]:
        """Yield the same batches as `read`, each with the place after it, from which reading can continue."""
        expected = after.number + 1
        for segment, length, is_last in self._segments_from(after):
            offset = after.offset if segment == after.segment else 0
            if upto is not None and segment > upto:
                return
            for head, data, end in self._records(segment, offset, length, is_last=is_last):
                if upto is not None and head.first > upto:
                    return
                if not head.rows or head.last < expected:
                    continue
                batch = read_rows(data, head, self._head(segment).schema)
                fresh = batch.between(expected, upto if upto is not None else batch.last)
                assert fresh is not None
                if fresh.first > expected:
                    raise FileNotFound(
                        f"rows {expected} to {fresh.first - 1} of stream {self._stream!r} were trimmed"
                    )
                expected = fresh.last + 1
                yield fresh, LogPlace(fresh.last, segment, end if fresh.last == batch.last else offset)

    def since(self, time_us: int) -> Iterator[Batch]:
        """Yield all rows from the first one whose time is `time_us` or later."""
        number = self.number_at(time_us)
        if number is not None:
            yield from self.read(number - 1)

    def number_at(self, time_us: int) -> int | None:
        """Return the number of the first row whose time is `time_us` or later; None if there is none."""
        segments = list(self._store.segments(self._stream))
        # The head of a segment contains the latest time of all rows before it.
        low, high = 0, max(len(segments) - 1, 0)
        while low < high:
            middle = (low + high + 1) // 2
            head = self._read_head(segments[middle][0])
            if head is not None and head.reached_us < time_us:
                low = middle
            else:
                high = middle - 1
        for segment, length in segments[low:]:
            for record, data, _ in self._records(segment, 0, length, is_last=segment == segments[-1][0]):
                if record.rows and record.latest_us >= time_us:
                    head = self._head(segment)
                    times = read_rows(data, record, head.schema).rows.column(head.type.time)
                    return record.first + int((times.cast(pa.int64()).to_numpy() >= time_us).argmax())
        return None

    def backwards(self) -> Iterator[Batch]:
        """Yield batches from the last to the first, to search for the latest of something."""
        segments = self._store.segments(self._stream)
        for at, (segment, length) in reversed(list(enumerate(segments))):
            data = memoryview(self._store.read(self._stream, segment, 0, length))
            heads = list(committed_records(data))
            end = heads[-1].end if heads else 0
            if end != len(data):
                self._require_torn(segment, 0, data, is_last=at == len(segments) - 1)
            for head in records_backwards(data, end):
                if head.rows:
                    yield read_rows(data, head, self._head(segment).schema)

    def type(self) -> StreamType | None:
        """Return the type of the stream; None if nothing was ever committed to it."""
        for segment, _ in reversed(self._store.segments(self._stream)):
            head = self._read_head(segment)
            if head is not None:
                return head.type
        return None

    def extent(self) -> tuple[int, int]:
        """Return the first and the last existing number; (1, 0) if there is none."""
        end = self.end()
        return end.first, end.place.number

    def end(self) -> LogEnd:
        """Return the present end of the log. This costs one short read, unless the tail is torn."""
        segments = self._store.segments(self._stream)
        torn = 0
        for segment, length in reversed(segments):
            begin = max(length - stream_log_tail_bytes, 0)
            data = memoryview(self._store.read(self._stream, segment, begin, length - begin))
            last = last_record(data)
            if last is not None:
                # The `first` of a record without rows is the number of the next row.
                return LogEnd(LogPlace(last.last, segment, begin + last.end), segments[0][0], torn)
            place = LogPlace(segment - 1, segment, 0)
            for record, _, at in self._records(segment, 0, length, is_last=True):
                place = LogPlace(record.last, segment, at)
            torn += length - place.offset
            if place.offset:
                return LogEnd(place, segments[0][0], torn)
        return LogEnd(LogPlace(0), 1, torn)

    # -- inside -----------------------------------------------------------------------------------------

    def _segments_from(self, after: LogPlace) -> Iterator[tuple[int, int, bool]]:
        """Yield segments with their length, starting with the one that contains the row after `after`."""
        segments = self._store.segments(self._stream)
        begin = max(sum(segment <= after.number + 1 for segment, _ in segments) - 1, 0)
        for at, (segment, length) in list(enumerate(segments))[begin:]:
            yield segment, length, at == len(segments) - 1

    def _records(
        self, segment: int, offset: int, length: int, *, is_last: bool
    ) -> Iterator[tuple[RecordHead, memoryview, int]]:
        """Yield the committed records of a segment from `offset`, each with its bytes and its end.

        Raises LogDamaged for bytes that are neither a record nor a torn tail.
        """
        if offset >= length:
            return
        base, left = offset, memoryview(b"")
        with closing(self._store.open(self._stream, segment)) as source:
            for room in _pieces(source, offset, length, self._rooms):
                data = _continued(left, room)
                taken = 0
                for head in committed_records(data):
                    if base + head.offset == 0:
                        # Saves another read of the head.
                        self._keep_head(segment, data)
                    yield head, data, base + head.end
                    taken = head.end
                base, left = base + taken, data[taken:]
        if left:
            self._require_torn(segment, base, left, is_last=is_last)

    def _require_torn(self, segment: int, base: int, rest: memoryview, *, is_last: bool) -> None:
        """Raise LogDamaged unless `rest`, the bytes of a segment from `base` on, is a torn tail."""
        where = f"segment {segment} of stream {self._stream!r} is rotten"
        try:
            torn_at(rest, base)
        except LogDamaged as error:
            raise LogDamaged(f"{where}: {error.message}") from None
        if not is_last:
            raise LogDamaged(f"{where}: it has no whole record at byte {base}, and it is not the last")

    def _head(self, segment: int) -> _Head:
        head = self._read_head(segment)
        if head is None:
            raise LogDamaged(
                f"segment {segment} of stream {self._stream!r} does not begin with a schema: it is rotten"
            )
        return head

    def _read_head(self, segment: int) -> _Head | None:
        if segment in self._heads:
            return self._heads[segment]
        data = memoryview(self._store.read(self._stream, segment, 0, stream_log_tail_bytes))
        start = read_head(data, 0)
        if start is not None and start.kind is Kind.SCHEMA and start.end > len(data):
            data = memoryview(self._store.read(self._stream, segment, 0, start.end))
        return self._keep_head(segment, data)

    def _keep_head(self, segment: int, data: memoryview) -> _Head | None:
        """Remember the schema at the beginning of a segment. Return None if there is none."""
        found = read_schema(data)
        if found is None:
            return None
        schema, record = found
        kind = StreamType(schema.remove_metadata(), time_column(schema))
        self._heads[segment] = _Head(kind, schema, record.end, record.latest_us)
        return self._heads[segment]


class LogTail:
    """A reader that follows the writer: `next` returns the rows that have arrived since the last call."""

    def __init__(self, store: SegmentStore, stream: str, after: int = 0) -> None:
        self._reader = LogReader(store, stream)
        self._place = LogPlace(after)

    @property
    def position(self) -> int:
        """The number of the last row that was returned."""
        return self._place.number

    def next(self) -> list[Batch]:
        batches = []
        for batch, place in self._reader.read_places(self._place):
            batches.append(batch)
            self._place = place
        return batches


class _Rooms:
    """Buffers for pieces. A buffer is reused once nothing refers to the rows in it.

    Allocating memory costs more than reading into it, since the kernel clears each new page.
    """

    def __init__(self) -> None:
        self._free: deque[NDArray[np.uint8]] = deque(maxlen=stream_log_rooms_kept)

    def take(self) -> memoryview:
        try:
            room = self._free.pop()
        except IndexError:
            # Not a bytearray, which would be zero-filled first.
            room = np.empty(_HEADROOM + stream_log_read_bytes, np.uint8)
        # Batches refer to the view, and not to the buffer itself.
        view = room[:]
        weakref.finalize(view, self._free.append, room).atexit = False
        return view.data


def _pieces(source: SegmentFile, offset: int, length: int, rooms: _Rooms) -> Iterator[memoryview]:
    """Yield the bytes of a segment in pieces, each after `_HEADROOM` free bytes for the rest of the last piece.

    There is no read-ahead here. On a local disk, a second thread costs more than it saves, since both need the
    interpreter. Over the network, the file system reads ahead for sequential readers.
    """
    for at in range(offset, length, stream_log_read_bytes):
        count = min(stream_log_read_bytes, length - at)
        if at == offset and count < stream_log_read_bytes:
            # A buffer of exactly the needed size, so that keeping these rows keeps no more memory than that.
            room = np.empty(_HEADROOM + count, np.uint8).data
        else:
            room = rooms.take()[: _HEADROOM + count]
        yield room[: _HEADROOM + source.read_into(at, room[_HEADROOM:])]


def _continued(left: memoryview, room: memoryview) -> memoryview:
    """Return a piece with the rest of the previous piece in front of it, in place if there is room."""
    if len(left) > _HEADROOM:
        return memoryview(b"".join((left, room[_HEADROOM:])))
    room[_HEADROOM - len(left) : _HEADROOM] = left
    return room[_HEADROOM - len(left) :]
