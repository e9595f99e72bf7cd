"""Writers of logs: many streams, made durable together.

    logs = StreamLogs(store)
    log = logs.open("sessions", stream_type)
    log.append(batch)
    logs.commit()       # everything appended to any stream is durable and visible
    log.trim(1000)      # rows up to 1000 are not needed: deletes whole segments

A log has one writer. It skips rows that it already has, so that a restarted writer may repeat itself. A writer
that cannot repeat its numbering commits rows as epochs: `append_epoch` takes each epoch of a writer once, and
readers see all of its rows or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Final

import pyarrow as pa

from peacefs.dataflow.limits import stream_log_record_bytes, stream_log_tail_bytes
from peacefs.dataflow.model.batches import Batch
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.protocol.errors import InvalidQuery, LogDamaged
from peacefs.protocol.limits import MIB

from .records import (
    Kind,
    committed_records,
    epoch_record,
    last_record,
    read_epochs,
    read_schema,
    rows_record,
    schema_record,
    torn_at,
)
from .segments import SegmentAppend, SegmentStore

# Size after which a stream log begins another segment.
stream_log_segment_bytes: Final = 64 * MIB
# Number of writers whose epochs a log remembers. Above that, it forgets the one with the oldest commit.
stream_log_writers_max: Final = 64


_NEVER_US = -(1 << 63)


class StreamLogs:
    """The logs of one writer."""

    def __init__(
        self,
        store: SegmentStore,
        *,
        segment_bytes: int = stream_log_segment_bytes,
        verify: bool = True,
    ) -> None:
        """`verify`: read the last segment of a log completely when the log is opened.

        If False, only the ends of that segment are read, unless the tail is torn.
        """
        self._store = store
        self._segment_bytes = segment_bytes
        self._verify = verify
        self._open: dict[str, StreamLog] = {}
        self._failed = False

    def open(self, stream: str, kind: StreamType) -> StreamLog:
        """Open a log for appending, and cut a torn tail after its last complete record.

        The previous writer is refused from now on. Raises LeaseError if that is impossible, LogDamaged if a record
        is corrupt, and InvalidQuery if the log has other columns.
        """
        assert stream not in self._open
        self._store.claim(stream)
        log = self._open[stream] = StreamLog(self._store, stream, kind, self._segment_bytes, verify=self._verify)
        return log

    def commit(self) -> None:
        """Make everything that was appended to any log durable.

        If this fails, any part of it may have been written: open the logs again, and repeat the appends.
        """
        assert not self._failed, "a commit has failed: open the logs anew"
        self._failed = True
        pending = [log.pending() for log in self._open.values()]
        # Segments of one stream are written one after the other, so that only the last can be torn.
        for appends in zip_longest(*pending):
            self._store.append_all([append for append in appends if append is not None])
        for log in self._open.values():
            log.committed()
        self._failed = False


@dataclass(frozen=True)
class _Transaction:
    """Rows that count only together, and the epochs that they commit."""

    batches: Sequence[Batch]
    epochs: Mapping[str, int]


class StreamLog:
    """One stream, as its writer sees it. `StreamLogs.open` creates it."""

    def __init__(
        self, store: SegmentStore, stream: str, kind: StreamType, segment_bytes: int, *, verify: bool
    ) -> None:
        self._store = store
        self._stream = stream
        self._kind = kind
        self._segment_bytes = segment_bytes
        self._appended: list[Batch | _Transaction] = []
        #: The last appended row, and the last durable row.
        self.last = self.durable = 0
        # The latest epoch of each writer, in the order of their last commits.
        self._epochs: dict[str, int] = {}
        # The same, as of the last encoded record.
        self._encoded_epochs: Mapping[str, int] = {}
        # The segment that is appended to (None before the first), its length, and the latest time in the log.
        self._segment: int | None = None
        self._length = 0
        self._reached_us = _NEVER_US
        self._recover(verify=verify)

    def append(self, batch: Batch) -> None:
        """Append rows. They are durable after the next commit."""
        fresh = batch.after(self.last)
        if fresh is None:
            return
        if fresh.first != self.last + 1 and (self._segment is not None or self._appended):
            raise LogDamaged(
                f"stream {self._stream!r} ends with row {self.last}, and row {fresh.first} comes next"
            )
        self._appended.append(fresh)
        self.last = fresh.last

    def epoch_of(self, writer: str) -> int | None:
        """Return the latest epoch that a writer has appended; None if there is none."""
        return self._epochs.get(writer)

    def append_epoch(self, writer: str, epoch: int, rows: Sequence[pa.RecordBatch]) -> bool:
        """Append the rows of an epoch.

        Return False if the log already has this epoch or a later one of the writer.
        """
        if epoch <= self._epochs.get(writer, -1):
            return False
        batches = []
        for part in rows:
            if part.num_rows:
                batches.append(Batch(self.last + 1, part))
                self.last = batches[-1].last
        if batches:
            self._epochs.pop(writer, None)
            self._epochs[writer] = epoch
            while len(self._epochs) > stream_log_writers_max:
                del self._epochs[next(iter(self._epochs))]
            self._appended.append(_Transaction(batches, dict(self._epochs)))
        return True

    def pending(self) -> list[SegmentAppend]:
        """Return the pending writes, one append per segment."""
        joined: dict[int, list[bytes]] = {}
        together: list[Batch] = []
        together_bytes = 0
        for each in (*self._appended, None):
            full = together_bytes >= stream_log_record_bytes
            if together and (full or not isinstance(each, Batch)):
                self._put(_joined(together), joined)
                together, together_bytes = [], 0
            if isinstance(each, Batch):
                together.append(each)
                # Estimated, since the exact size takes longer to compute than everything else here.
                together_bytes += int(each.rows.get_total_buffer_size())
            elif each is not None:
                self._put_transaction(each, joined)
        self._appended.clear()
        return [SegmentAppend(self._stream, segment, b"".join(parts)) for segment, parts in joined.items()]

    def committed(self) -> None:
        self.durable = self.last

    def trim(self, number: int) -> int:
        """Delete the segments whose rows all have numbers up to `number`, and return how many were deleted.

        The last segment stays.
        """
        return trim(self._store, self._stream, number)

    # -- writing --------------------------------------------------------------------------------------

    def _put(self, batch: Batch, joined: dict[int, list[bytes]]) -> None:
        data, latest_us = rows_record(batch, self._kind.time)
        self._put_bytes(batch.first, data, joined)
        self._reached_us = max(self._reached_us, latest_us)

    def _put_transaction(self, each: _Transaction, joined: dict[int, list[bytes]]) -> None:
        parts = [rows_record(batch, self._kind.time, Kind.PART) for batch in each.batches]
        reached_us = max(self._reached_us, *(latest_us for _, latest_us in parts))
        end = epoch_record(each.epochs, each.batches[-1].last + 1, reached_us)
        self._put_bytes(each.batches[0].first, b"".join([*(data for data, _ in parts), end]), joined)
        self._reached_us, self._encoded_epochs = reached_us, each.epochs

    def _put_bytes(self, first: int, data: bytes, joined: dict[int, list[bytes]]) -> None:
        """Add bytes that belong together to the current segment, or to a new one."""
        if self._segment is None or self._length + len(data) > self._segment_bytes:
            start = schema_record(self._kind.schema, self._kind.time, first, self._reached_us)
            if self._encoded_epochs:
                start += epoch_record(self._encoded_epochs, first, self._reached_us)
            self._segment, self._length, data = first, 0, start + data
        joined.setdefault(self._segment, []).append(data)
        self._length += len(data)

    # -- recovery ---------------------------------------------------------------------------------------

    def _recover(self, *, verify: bool) -> None:
        """Find the last row, and cut an incomplete record of a writer that died."""
        for segment, length in reversed(self._store.segments(self._stream)):
            if (not verify and self._recover_from_ends(segment, length)) or self._recover_whole(segment, length):
                self._epochs = dict(self._encoded_epochs)
                self.durable = self.last
                return

    def _recover_from_ends(self, segment: int, length: int) -> bool:
        """Recover from the beginning and the end of a segment. Return False if that is not enough."""
        tail = min(length, stream_log_tail_bytes)
        end = memoryview(self._store.read(self._stream, segment, length - tail, tail))
        last = last_record(end)
        found = read_schema(memoryview(self._store.read(self._stream, segment, 0, tail)))
        if last is None or last.kind is not Kind.EPOCH or found is None or last.last < segment:
            return False
        self._require(found[0])
        self._encoded_epochs = read_epochs(end, last)
        self._segment, self._length, self.last = segment, length, last.last
        self._reached_us = last.latest_us
        return True

    def _recover_whole(self, segment: int, length: int) -> bool:
        """Recover from a whole segment. If it has no committed row, delete it and return False."""
        data = memoryview(self._store.read(self._stream, segment, 0, length))
        try:
            torn = torn_at(data)
        except LogDamaged as error:
            raise LogDamaged(f"segment {segment} of stream {self._stream!r} is rotten: {error.message}") from None
        if torn is not None:
            data = data[:torn]
        found = read_schema(data)
        heads = list(committed_records(data))
        rows = [head for head in heads if head.rows]
        if found is None or not rows:
            # The segment was created, but no row was committed to it.
            self._store.delete(self._stream, segment)
            return False
        self._require(found[0])
        if torn is not None:
            self._store.truncate(self._stream, segment, torn)
        self._segment, self._length, self.last = segment, len(data), rows[-1].last
        self._reached_us = max(found[1].latest_us, *(head.latest_us for head in rows))
        epochs = [head for head in heads if head.kind is Kind.EPOCH]
        self._encoded_epochs = read_epochs(data, epochs[-1]) if epochs else {}
        return True

    def _require(self, schema: pa.Schema) -> None:
        if schema != self._kind.schema:
            raise InvalidQuery(
                f"stream {self._stream!r} has the columns ({', '.join(map(str, schema))}), and the query writes "
                f"({', '.join(map(str, self._kind.schema))}): write to another stream"
            )


def trim(store: SegmentStore, stream: str, number: int) -> int:
    """Delete the segments whose rows all have numbers up to `number`, except the last. Return how many."""
    gone = 0
    for (segment, _), (following, _) in pairwise(store.segments(stream)):
        if following - 1 <= number:
            store.delete(stream, segment)
            gone += 1
    return gone


def _joined(batches: Sequence[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches([batch.rows for batch in batches]).combine_chunks()
    return Batch(batches[0].first, table.to_batches()[0])
