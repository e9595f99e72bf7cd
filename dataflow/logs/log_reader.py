"""Logs that are read: from a number or a time on, backwards, and along with the writer."""

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

# A reader reads a log in pieces of so many bytes, and keeps so many rooms for them that nothing is in any more.
# They are decoded while the processor's cache has them.
stream_log_read_bytes: Final = 2 * MIB
stream_log_rooms_kept: Final = 2


#: Room for a record that a piece cuts: one is at most as long, and a little, unless a batch is longer.
_HEADROOM: Final = stream_log_record_bytes + stream_log_tail_bytes


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A place between two records: row `number` is the last before it. Segment 0 stands for "look for it"."""

    number: int
    segment: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The state of a log's end."""

    place: LogPlace
    #: The lowest number that is there; 1 if there is none.
    first: int
    #: Bytes behind the last whole record, of a writer that died or is writing.
    torn_bytes: int


@dataclass(frozen=True, slots=True)
class _Head:
    """The beginning of a segment."""

    type: StreamType
    #: As it was stored, with the metadata.
    schema: pa.Schema
    end: int
    reached_us: int


class LogReader:
    """A stream, as others see it than its writer. Rows may be seen a moment before they are durable."""

    def __init__(self, store: SegmentStore, stream: str) -> None:
        self._store = store
        self._stream = stream
        self._heads: dict[int, _Head] = {}
        self._rooms = _Rooms()

    def read(self, after: int = 0, *, upto: int | None = None) -> Iterator[Batch]:
        """Yield the rows with numbers above `after`, up to `upto`, or to the end that the log has by then.

        Raises FileNotFound if some of them were trimmed, and LogDamaged where a record is rotten, after the rows
        before it.
        """
        for batch, _ in self.read_places(LogPlace(after), upto=upto):
            yield batch

    def read_places(self, after: LogPlace, *, upto: int | None = None) -> Iterator[tuple[Batch, LogPlace]]:
        """Yield the same, each with the place behind it, from which to go on."""
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
        """Yield the rows from the first that is of `time_us` or later, and all that follow it."""
        number = self.number_at(time_us)
        if number is not None:
            yield from self.read(number - 1)

    def number_at(self, time_us: int) -> int | None:
        """Return the number of the first row that is of `time_us` or later; None if there is none."""
        segments = list(self._store.segments(self._stream))
        # A segment's head says up to which time rows had come before it.
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
        """Yield batches from the last to the first, as those need who look for the latest of something."""
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
        """Return the first and the last number that are there; (1, 0) if there is none."""
        end = self.end()
        return end.first, end.place.number

    def end(self) -> LogEnd:
        """Return where the log ends now. It costs one short read, unless the tail is torn."""
        segments = self._store.segments(self._stream)
        torn = 0
        for segment, length in reversed(segments):
            begin = max(length - stream_log_tail_bytes, 0)
            data = memoryview(self._store.read(self._stream, segment, begin, length - begin))
            last = last_record(data)
            if last is not None:
                # A record without rows has the number of the next row as its `first`.
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
        """Yield segments with their length: the one with the row behind `after`, and all that follow."""
        segments = self._store.segments(self._stream)
        begin = max(sum(segment <= after.number + 1 for segment, _ in segments) - 1, 0)
        for at, (segment, length) in list(enumerate(segments))[begin:]:
            yield segment, length, at == len(segments) - 1

    def _records(
        self, segment: int, offset: int, length: int, *, is_last: bool
    ) -> Iterator[tuple[RecordHead, memoryview, int]]:
        """Yield committed records of a segment from `offset` on, with the bytes that they are in, and their ends.

        Raises LogDamaged for what is no record and no torn tail.
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
                        # Nobody need read it again for itself.
                        self._keep_head(segment, data)
                    yield head, data, base + head.end
                    taken = head.end
                base, left = base + taken, data[taken:]
        if left:
            self._require_torn(segment, base, left, is_last=is_last)

    def _require_torn(self, segment: int, base: int, rest: memoryview, *, is_last: bool) -> None:
        """Raise LogDamaged unless `rest`, the bytes of a segment from `base` on, are a torn tail."""
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
        """Remember what a segment begins with; None if that is no schema."""
        found = read_schema(data)
        if found is None:
            return None
        schema, record = found
        kind = StreamType(schema.remove_metadata(), time_column(schema))
        self._heads[segment] = _Head(kind, schema, record.end, record.latest_us)
        return self._heads[segment]


class LogTail:
    """A reader that goes along with the writer: `next` returns the rows that have come since the last call."""

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
    """Memory for pieces, used again once nothing refers to the rows in it.

    New memory costs more than what is read into it, since the kernel clears each of its pages first.
    """

    def __init__(self) -> None:
        self._free: deque[NDArray[np.uint8]] = deque(maxlen=stream_log_rooms_kept)

    def take(self) -> memoryview:
        try:
            room = self._free.pop()
        except IndexError:
            # Not a bytearray, which is filled with zeros first.
            room = np.empty(_HEADROOM + stream_log_read_bytes, np.uint8)
        # Batches refer to the view, and not to the room itself.
        view = room[:]
        weakref.finalize(view, self._free.append, room).atexit = False
        return view.data


def _pieces(source: SegmentFile, offset: int, length: int, rooms: _Rooms) -> Iterator[memoryview]:
    """Yield the bytes of a segment in turn, each piece behind `_HEADROOM` bytes for the rest of the one before.

    Nothing is read ahead here: on this host a second thread costs more than it saves, since both want the
    interpreter, and over the network the file system reads ahead for who reads on.
    """
    for at in range(offset, length, stream_log_read_bytes):
        count = min(stream_log_read_bytes, length - at)
        if at == offset and count < stream_log_read_bytes:
            # Whoever keeps these rows keeps no more memory than they need.
            room = np.empty(_HEADROOM + count, np.uint8).data
        else:
            room = rooms.take()[: _HEADROOM + count]
        yield room[: _HEADROOM + source.read_into(at, room[_HEADROOM:])]


def _continued(left: memoryview, room: memoryview) -> memoryview:
    """Return a piece with what is left of the one before it in front: where it is, if there is room."""
    if len(left) > _HEADROOM:
        return memoryview(b"".join((left, room[_HEADROOM:])))
    room[_HEADROOM - len(left) : _HEADROOM] = left
    return room[_HEADROOM - len(left) :]
