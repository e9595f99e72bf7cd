"""Logs that are read: from a number or a time on, backwards, and along with the writer."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

import pyarrow as pa

from peacefs.dataflow.model.batches import Batch
from peacefs.protocol.errors import FileNotFound, LogDamaged

from .records import (
    RecordHead,
    read_rows,
    read_schema,
    records_backwards,
    time_column,
    torn_at,
    whole_records,
)
from .segments import SegmentStore


@dataclass(frozen=True)
class SegmentIndex:
    """The records of a segment: from numbers and times to places."""

    heads: tuple[RecordHead, ...]
    #: The latest time up to each record, since rows need not be in the order of their times.
    _reached_us: list[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_reached_us", list(accumulate((head.latest_us for head in self.heads), max)))

    def after(self, number: int) -> int:
        """Return the place of the first record that has a row above `number`."""
        return bisect_left(self.heads, number + 1, key=lambda head: head.last)

    def since(self, time_us: int) -> int:
        """Return the place of the first record up to which a row of `time_us` or later has come."""
        return bisect_left(self._reached_us, time_us)


class LogReader:
    """A stream, as others see it than its writer. Rows may be seen a moment before they are durable."""

    def __init__(self, store: SegmentStore, stream: str) -> None:
        self._store = store
        self._stream = stream

    def read(self, after: int = 0) -> Iterator[Batch]:
        """Yield the rows with numbers above `after`, up to the end that the log has when it gets there.

        Raises FileNotFound if some of them were trimmed.
        """
        expected = after + 1
        for batch in self._batches(after):
            if batch.first > expected:
                raise FileNotFound(f"rows {expected} to {batch.first - 1} of stream {self._stream!r} were trimmed")
            expected = batch.last + 1
            yield batch

    def since(self, time_us: int) -> Iterator[Batch]:
        """Yield the rows from the first that is of `time_us` or later, and all that follow it."""
        segments = self._store.segments(self._stream)
        for at, (segment, length) in enumerate(segments):
            schema, data, index = self._load(segment, length, is_last=at == len(segments) - 1)
            place = index.since(time_us)
            if place < len(index.heads):
                assert schema is not None
                batch = read_rows(data, index.heads[place], schema)
                times = batch.rows.column(time_column(schema)).cast(pa.int64()).to_numpy()
                yield from self._batches(batch.first - 1 + int((times >= time_us).argmax()))
                return

    def backwards(self) -> Iterator[Batch]:
        """Yield batches from the last to the first, as those need who look for the latest of something."""
        segments = self._store.segments(self._stream)
        for at, (segment, length) in reversed(list(enumerate(segments))):
            schema, data, index = self._load(segment, length, is_last=at == len(segments) - 1)
            if schema is None or not index.heads:
                continue
            for head in records_backwards(data, index.heads[-1].end):
                if head.rows:
                    yield read_rows(data, head, schema)

    def extent(self) -> tuple[int, int]:
        """Return the first and the last number that are there; (1, 0) if there is none."""
        segments = self._store.segments(self._stream)
        for at, (segment, length) in reversed(list(enumerate(segments))):
            _, _, index = self._load(segment, length, is_last=at == len(segments) - 1)
            if index.heads:
                return segments[0][0], index.heads[-1].last
        return 1, 0

    def _batches(self, after: int) -> Iterator[Batch]:
        segments = self._store.segments(self._stream)
        # The last that begins at or before the row that is wanted, and all behind it.
        begin = max(sum(segment <= after + 1 for segment, _ in segments) - 1, 0)
        for at, (segment, length) in list(enumerate(segments))[begin:]:
            schema, data, index = self._load(segment, length, is_last=at == len(segments) - 1)
            for head in index.heads[index.after(after) :]:
                assert schema is not None
                fresh = read_rows(data, head, schema).after(after)
                if fresh is not None:
                    yield fresh

    def _load(
        self, segment: int, length: int, *, is_last: bool
    ) -> tuple[pa.Schema | None, memoryview, SegmentIndex]:
        data = memoryview(self._store.read(self._stream, segment, 0, length))
        found = read_schema(data)
        heads = tuple(whole_records(data)) if found else ()
        end = heads[-1].end if heads else 0
        # The last segment may end in the middle of a record that is being written.
        if end != len(data) and not (is_last and torn_at(data) == end):
            raise LogDamaged(
                f"segment {segment} of stream {self._stream!r} has no whole record at byte {end}: it is rotten"
            )
        return (found[0] if found else None), data, SegmentIndex(heads[1:])


class LogTail:
    """A reader that goes along with the writer: `next` returns the rows that have come since the last call."""

    def __init__(self, store: SegmentStore, stream: str, after: int = 0) -> None:
        self._reader = LogReader(store, stream)
        self.position = after

    def next(self) -> list[Batch]:
        batches = list(self._reader.read(self.position))
        if batches:
            self.position = batches[-1].last
        return batches
