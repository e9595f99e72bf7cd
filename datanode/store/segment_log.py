"""Appends small chunks to the active segment, many with one fsync.

This is a group commit without its own thread. A writer that finds no leader becomes the leader. It writes all
waiting records with one append and one fsync, and then makes the first writer that came meanwhile the next leader.
A record is published only after the fsync has succeeded. After a failed fsync, nothing in the segment is trusted:
it is closed, read back from the medium, and never fsynced again; its writers get the error.

The queue has one submission per caller, so the number of callers limits it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from peacefs.datanode import metrics
from peacefs.datanode.limits import disk_timeout_s, segment_batch_records_max
from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import ChunkError, DiskFault
from peacefs.protocol.limits import MIB
from peacefs.runtime import effects as fx

from .disk_faults import close_quietly, is_no_room, named_fault
from .layout import (
    HEADER_BYTES,
    Record,
    RecordKind,
    StorePaths,
    pack_record,
    record_bytes,
)
from .segments import NewRecord, Segment, Segments, Tombstone

segment_batch_bytes_max: Final = 8 * MIB


_APPENDING = "cannot append to a segment"


@dataclass(slots=True, eq=False)
class _Submission:
    """The records of one caller. All fields are guarded by the log's lock."""

    records: Sequence[NewRecord]
    ticket: fx.Ticket = field(default_factory=fx.Ticket)
    leads: bool = False
    is_settled: bool = False
    fault: ChunkError | None = None


@dataclass(slots=True)
class _Active:
    segment: Segment
    file: fx.File


class SegmentLog:
    """Appends records and tombstones to the last segment, for `ChunkStore` and `Compactor`. Thread-safe.

    Only the leader touches the active segment. A record is in the index only if it was fsynced.
    """

    def __init__(self, paths: StorePaths, segments: Segments, rng: random.Random, segment_bytes: int) -> None:
        self._paths = paths
        self._segments = segments
        self._rng = rng
        self._segment_bytes = segment_bytes
        self._lock = Lock()
        self._queue: deque[_Submission] = deque()
        self._is_led = False
        self._active: _Active | None = None
        self._last_number = 0

    def continue_after(self, last_number: int) -> None:
        """Set the last used segment number, at start."""
        self._last_number = last_number

    def adopt(self, segment: Segment, file: fx.File, *, is_last: bool) -> fx.Steps[None]:
        """Take over a fully verified segment at start: append to it if it is the last and has room, or seal it."""
        active = _Active(segment, file)
        if is_last and segment.end < self._segment_bytes:
            segment.is_open = True
            self._active = active
        else:
            yield from self._retire(active)

    def append(self, records: Sequence[NewRecord]) -> fx.Steps[None]:
        """Append records, fsync them and publish them.

        A record that a newer version has superseded meanwhile is not published: `is_published` stays False. Takes
        at most `segment_batch_records_max` records, each of a small chunk. Raises DiskFull or DiskFault.
        """
        assert len(records) <= segment_batch_records_max
        submission = _Submission(records)
        with self._lock:
            self._queue.append(submission)
            if not self._is_led:
                self._is_led = submission.leads = True
        if not submission.leads and not (yield from fx.wait(submission.ticket, timeout_s=disk_timeout_s)):
            self._give_up(submission)
        if submission.leads:
            yield from self._lead()
        assert submission.is_settled
        if submission.fault is not None:
            raise type(submission.fault)(submission.fault.message)

    def flush(self) -> fx.Steps[None]:
        """Write the waiting tombstones. They are fsynced with the next record."""
        if self._segments.tombstones_waiting:
            yield from self.append(())

    def close(self) -> fx.Steps[None]:
        """Close the active segment, when there are no more callers."""
        active, self._active = self._active, None
        if active is not None:
            yield from close_quietly(active.file)

    # -- leader and followers ----------------------------------------------------------------------

    def _give_up(self, submission: _Submission) -> None:
        """Stop waiting, unless the turn has just come. A record already being written may still be stored."""
        with self._lock:
            if submission.leads or submission.is_settled:
                return
            if submission in self._queue:
                self._queue.remove(submission)
        raise DiskFault(f"{_APPENDING}: the disk did not answer within {disk_timeout_s:g} s")

    def _lead(self) -> fx.Steps[None]:
        # Let other callers that are about to append join the batch.
        yield from fx.sleep(0.0)
        batch = self._take_batch()
        fault: ChunkError | None = DiskFault(f"{_APPENDING}: broken off")
        try:
            yield from self._write([record for submission in batch for record in submission.records])
            fault = None
        except OSError as error:
            fault = named_fault(error, _APPENDING)
        finally:
            self._settle(batch, fault)

    def _take_batch(self) -> list[_Submission]:
        """Return the leader's own submission, which is first, and as many others as one append may contain."""
        batch: list[_Submission] = []
        count = size = 0
        with self._lock:
            while self._queue:
                records = self._queue[0].records
                count += len(records)
                size += sum(len(record.data) for record in records)
                if batch and (count > segment_batch_records_max or size > segment_batch_bytes_max):
                    break
                batch.append(self._queue.popleft())
        return batch

    def _settle(self, batch: list[_Submission], fault: ChunkError | None) -> None:
        with self._lock:
            for submission in batch:
                submission.fault = fault
                submission.is_settled = True
            self._is_led = bool(self._queue)
            woken = batch[1:]
            if self._queue:
                self._queue[0].leads = True
                woken.append(self._queue[0])
        for submission in woken:
            submission.ticket.fire()

    # -- the active segment ------------------------------------------------------------------------

    def _write(self, records: Sequence[NewRecord]) -> fx.Steps[None]:
        tombstones = self._segments.take_tombstones()
        if not records and not tombstones:
            return
        try:
            active = yield from self._active_with_room()
            at = yield from self._append_and_sync(active, tombstones, records)
        except OSError:
            self._segments.put_back(tombstones)
            raise
        for tombstone in tombstones:
            self._segments.count_tombstone(active.segment, tombstone.place.segment)
        for record in records:
            self._segments.install(active.segment, at, record)
            at += record_bytes(len(record.data))

    def _append_and_sync(
        self, active: _Active, tombstones: Sequence[Tombstone], records: Sequence[NewRecord]
    ) -> fx.Steps[int]:
        """Append and fsync; return the offset of the first of `records`."""
        segment = active.segment
        first = segment.end + len(tombstones) * HEADER_BYTES
        end = first + sum(record_bytes(len(each.data)) for each in records)
        try:
            yield from fx.append(active.file, *_buffers(tombstones, records, segment.salt))
        except OSError as error:
            # If the disk is full, only this append is lost. After any other error the segment is not trusted.
            if not is_no_room(error) or not (yield from self._roll_back(active)):
                yield from self._distrust(active, end)
            raise
        if records:
            try:
                yield from fx.sync(active.file)
            except OSError:
                yield from self._distrust(active, end)
                raise
            metrics.segment_batch_records.observe(len(records))
        segment.end = end
        return first

    def _roll_back(self, active: _Active) -> fx.Steps[bool]:
        try:
            yield from fx.truncate(active.file, active.segment.end)
        except OSError:
            return False
        return True

    def _distrust(self, active: _Active, end: int) -> fx.Steps[None]:
        self._active = None
        active.segment.end = end
        active.segment.is_suspect = True
        active.segment.is_open = False
        yield from self._segments.lose_what_fails(active.segment, active.file)
        yield from close_quietly(active.file)

    def _active_with_room(self) -> fx.Steps[_Active]:
        if self._active is not None and self._active.segment.end >= self._segment_bytes:
            yield from self._retire(self._active)
        if self._active is None:
            self._active = yield from self._create()
        return self._active

    def _retire(self, active: _Active) -> fx.Steps[None]:
        """End a segment with a seal, so that the next start need not verify it."""
        seal = pack_record(Record(RecordKind.SEAL), b"", active.segment.salt)
        end = active.segment.end + len(seal)
        try:
            yield from fx.append(active.file, seal)
            yield from fx.sync(active.file)
        except OSError:
            yield from self._distrust(active, end)
            return
        self._active = None
        active.segment.end = end
        active.segment.is_open = False
        yield from close_quietly(active.file)

    def _create(self) -> fx.Steps[_Active]:
        self._last_number += 1
        salt = self._rng.getrandbits(32)
        path = self._paths.segment_file(self._last_number, salt)
        segment = Segment(self._last_number, salt, path, is_open=True)
        file = yield from fx.open_file(path, create=True)
        try:
            yield from fx.sync_directory(self._paths.segments)
        except OSError:
            yield from close_quietly(file)
            raise
        self._segments.add(segment)
        return _Active(segment, file)


def _buffers(tombstones: Sequence[Tombstone], records: Sequence[NewRecord], salt: int) -> list[Bytes]:
    graves = b"".join(
        pack_record(Record(RecordKind.TOMBSTONE, chunk, place.version, 0, place.segment, place.offset), b"", salt)
        for chunk, place in tombstones
    )
    buffers: list[Bytes] = [graves]
    for each in records:
        header = Record(RecordKind.CHUNK, each.chunk, each.version, len(each.data))
        buffers += (pack_record(header, each.sums, salt), each.data)
    return buffers
