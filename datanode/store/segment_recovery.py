"""Reads all segments at start: fills the index, cuts off torn ends, and finds where appends continue.

A segment that ends with its seal was fsynced as a whole, so reading its headers is enough. Any other segment may
end with a record half-written before a crash. It is fsynced (the process may have been killed before that), read
back from the medium, and verified in full. If it is intact, it is used again or sealed; otherwise it is suspect,
and compaction empties it.
"""

from __future__ import annotations

from peacefs.runtime import effects as fx

from .chunk_index import ChunkIndex, IndexedPlace
from .disk_faults import close_quietly
from .layout import (
    HEADER_BYTES,
    RecordKind,
    StorePaths,
    parse_segment_file_name,
    record_bytes,
    unpack_record,
)
from .recovery_report import StoreRecovery
from .segment_log import SegmentLog
from .segment_scan import FoundRecord, SegmentScan
from .segments import Segment, Segments


class SegmentRecovery:
    """Reads the segments at one start; the results go to `index`, `segments` and `recovery`."""

    def __init__(
        self, paths: StorePaths, index: ChunkIndex, segments: Segments, log: SegmentLog, recovery: StoreRecovery
    ) -> None:
        self._paths = paths
        self._index = index
        self._segments = segments
        self._log = log
        self._recovery = recovery

    def run(self) -> fx.Steps[None]:
        # The process may have been killed between the creation of a segment and this fsync.
        yield from fx.sync_directory(self._paths.segments)
        found = []
        for name, size in (yield from fx.list_directory(self._paths.segments)):
            parsed = parse_segment_file_name(name)
            if parsed is None or size < 0:
                self._recovery.foreign.append(f"{self._paths.segments}/{name}")
                continue
            number, salt = parsed
            found.append(Segment(number, salt, self._paths.segment_file(number, salt), end=size))
        for segment in found:
            self._segments.add(segment)
        for segment in found:
            yield from self._read(segment, is_last=segment is found[-1])
        self._log.continue_after(found[-1].number if found else 0)

    def _read(self, segment: Segment, *, is_last: bool) -> fx.Steps[None]:
        file = yield from fx.open_file(segment.path)
        try:
            is_sealed = yield from self._ends_with_seal(segment, file)
            if not is_sealed:
                yield from self._settle_on_medium(segment, file)
            yield from self._scan(segment, file, is_sealed=is_sealed)
        except Exception:
            yield from close_quietly(file)
            raise
        if is_sealed or segment.is_suspect or self._recovery.read_only:
            yield from close_quietly(file)
        else:
            yield from self._log.adopt(segment, file, is_last=is_last)

    def _ends_with_seal(self, segment: Segment, file: fx.File) -> fx.Steps[bool]:
        if segment.end < HEADER_BYTES:
            return False
        tail = yield from fx.read_at(file, segment.end - HEADER_BYTES, HEADER_BYTES)
        record = unpack_record(tail, 0, segment.salt)
        return record is not None and record.kind is RecordKind.SEAL

    def _settle_on_medium(self, segment: Segment, file: fx.File) -> fx.Steps[None]:
        try:
            yield from fx.sync(file)
        except OSError:
            segment.is_suspect = True
        yield from fx.drop_cached(file)

    def _scan(self, segment: Segment, file: fx.File, *, is_sealed: bool) -> fx.Steps[None]:
        scan = SegmentScan(file, segment.end, segment.salt, with_data=not is_sealed)
        while (window := (yield from scan.next_window())) is not None:
            for found in window:
                if found.intact:
                    self._take(segment, found)
        self._recovery.torn_bytes += scan.torn_bytes
        self._recovery.damaged_bytes += scan.damaged_bytes
        segment.is_suspect |= scan.damaged_bytes > 0
        if scan.torn_bytes and self._recovery.read_only:
            segment.is_suspect = True
        if scan.torn_bytes and not segment.is_suspect:
            yield from fx.truncate(file, scan.sound_end)
            segment.end = scan.sound_end

    def _take(self, segment: Segment, found: FoundRecord) -> None:
        record = found.record
        if record.kind is RecordKind.CHUNK:
            segment.live_bytes += record_bytes(record.length)
            place = IndexedPlace(record.version, record.length, segment.number, found.offset)
            loser = self._index.publish(record.chunk, place)
            if loser is not None:
                self._recovery.stale += loser.version != place.version
                self._segments.release(loser)
        elif record.kind is RecordKind.TOMBSTONE:
            self._segments.count_tombstone(segment, record.segment)
            present = self._index.find(record.chunk)
            if present is not None and present[2:] == (record.segment, record.offset):
                self._index.forget(record.chunk, present)
                self._segments.release(present)
