"""Logs that are written: many streams, made durable together.

    logs = StreamLogs(store)
    log = logs.open("sessions", stream_type)
    log.append(batch)
    logs.commit()       # what was appended to any stream is durable, and readers see it
    log.trim(1000)      # rows up to 1000 are not needed: whole segments go

A log has one writer. Rows that it has already are left out, so that a writer that begins again may repeat itself.
"""

from __future__ import annotations

from itertools import pairwise, zip_longest

import pyarrow as pa

from peacefs.dataflow.model.batches import Batch
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.protocol import limits
from peacefs.protocol.errors import InvalidQuery, LogDamaged

from .records import read_schema, rows_record, schema_record, torn_at, whole_records
from .segments import Append, SegmentStore


class StreamLogs:
    """The logs of one writer."""

    def __init__(self, store: SegmentStore, *, segment_bytes: int = limits.stream_log_segment_bytes) -> None:
        self._store = store
        self._segment_bytes = segment_bytes
        self._open: dict[str, StreamLog] = {}
        self._failed = False

    def open(self, stream: str, kind: StreamType) -> StreamLog:
        """Open a log for appending; a tail that a writer left torn is cut at its last whole record."""
        assert stream not in self._open
        log = self._open[stream] = StreamLog(self._store, stream, kind, self._segment_bytes)
        return log

    def commit(self) -> None:
        """Make durable what was appended to all logs, together.

        If that fails, any part of it may be there: open the logs anew, and append again.
        """
        assert not self._failed, "a commit has failed: open the logs anew"
        self._failed = True
        pending = [log.pending() for log in self._open.values()]
        # Segments of one stream go one after the other, so that only the last can be torn.
        for appends in zip_longest(*pending):
            self._store.append_all([append for append in appends if append is not None])
        for log in self._open.values():
            log.committed()
        self._failed = False


class StreamLog:
    """One stream, as its writer sees it. Made by `StreamLogs.open`."""

    def __init__(self, store: SegmentStore, stream: str, kind: StreamType, segment_bytes: int) -> None:
        self._store = store
        self._stream = stream
        self._kind = kind
        self._segment_bytes = segment_bytes
        self._pending: list[Append] = []
        #: The last row that was appended, and the last that is durable.
        self.last = self.durable = 0
        # The segment that is appended to, None before the first, and how long it is.
        self._segment: int | None = None
        self._length = 0
        self._recover()

    def append(self, batch: Batch) -> None:
        """Append rows; they are durable after the next commit."""
        fresh = batch.after(self.last)
        if fresh is None:
            return
        if fresh.first != self.last + 1 and self._segment is not None:
            raise LogDamaged(
                f"stream {self._stream!r} ends with row {self.last}, and row {fresh.first} comes next"
            )
        data = rows_record(fresh, self._kind.time)
        if self._segment is None or self._length + len(data) > self._segment_bytes:
            self._segment, self._length = fresh.first, 0
            data = schema_record(self._kind.schema, self._kind.time) + data
        self._pending.append(Append(self._stream, self._segment, data))
        self._length += len(data)
        self.last = fresh.last

    def pending(self) -> list[Append]:
        """Return what is to be written, one append for each segment."""
        joined: dict[int, list[bytes]] = {}
        for append in self._pending:
            joined.setdefault(append.segment, []).append(append.data)
        return [Append(self._stream, segment, b"".join(parts)) for segment, parts in joined.items()]

    def committed(self) -> None:
        self._pending.clear()
        self.durable = self.last

    def trim(self, number: int) -> None:
        """Drop the segments all of whose rows have numbers up to `number`. The last segment stays."""
        segments = self._store.segments(self._stream)
        for (segment, _), (following, _) in pairwise(segments):
            if following - 1 <= number:
                self._store.delete(self._stream, segment)

    def _recover(self) -> None:
        """Find the last row; cut what a writer that died has left in the middle of a record."""
        for segment, length in reversed(self._store.segments(self._stream)):
            data = memoryview(self._store.read(self._stream, segment, 0, length))
            torn = torn_at(data)
            if torn is not None:
                data = data[:torn]
            found = read_schema(data)
            heads = list(whole_records(data))[1:] if found else []
            if not heads:
                # The segment was begun and no row of it was written.
                self._store.delete(self._stream, segment)
                continue
            assert found is not None
            self._require(found[0])
            if torn is not None:
                self._store.truncate(self._stream, segment, torn)
            self._segment, self._length = segment, len(data)
            self.last = self.durable = heads[-1].last
            return

    def _require(self, schema: pa.Schema) -> None:
        if schema != self._kind.schema:
            raise InvalidQuery(
                f"stream {self._stream!r} has the columns ({', '.join(map(str, schema))}), and the query writes "
                f"({', '.join(map(str, self._kind.schema))}): write to another stream"
            )
