"""Reclaims the space of dead records: copies the live records of a segment elsewhere and removes the file.

A crash at any point is safe: the copies are fsynced before the file is removed, and of two equal records either
may be used. Readers are not disturbed: those with an open file keep it, later ones find the new place.
"""

from __future__ import annotations

from threading import Lock
from typing import NamedTuple

from peacefs.datanode import metrics
from peacefs.datanode.limits import segment_batch_records_max
from peacefs.runtime import effects as fx

from .chunk_index import ChunkIndex, IndexedPlace
from .disk_faults import closing
from .layout import RecordKind, StorePaths, record_bytes
from .segment_log import SegmentLog
from .segment_scan import FoundRecord, SegmentScan
from .segments import NewRecord, Segment, Segments


class Compaction(NamedTuple):
    """The result of a round."""

    removed_segments: int = 0
    #: The total size of the removed segments; their live records use space elsewhere now.
    removed_bytes: int = 0
    moved_chunks: int = 0


class Compactor:
    """Empties segments on which the disk failed, and segments of which more than half is dead."""

    def __init__(self, paths: StorePaths, index: ChunkIndex, segments: Segments, log: SegmentLog) -> None:
        self._paths = paths
        self._index = index
        self._segments = segments
        self._log = log
        self._lock = Lock()
        self._is_running = False

    def run(self) -> fx.Steps[Compaction]:
        """Run one round: remove segments without live records, and empty the segment that needs it most.

        Does nothing while another round is under way. Raises OSError, DiskFull or DiskFault. What was done is
        kept.
        """
        with self._lock:
            if self._is_running:
                return Compaction()
            self._is_running = True
        try:
            return (yield from self._round())
        finally:
            self._is_running = False

    def _round(self) -> fx.Steps[Compaction]:
        dead = [segment for segment, needed_bytes in self._segments.closed() if needed_bytes == 0]
        yield from self._remove(dead)
        # Do this last, so that no tombstones are written for records of removed segments.
        yield from self._log.flush()
        moved_chunks = 0
        wasteful = self._most_wasteful()
        if wasteful is not None:
            moved_chunks = yield from self._empty(wasteful)
            yield from self._remove([wasteful])
            dead.append(wasteful)
        removed_bytes = sum(segment.end for segment in dead)
        metrics.segments_removed.inc(len(dead))
        metrics.segment_bytes_removed.inc(removed_bytes)
        return Compaction(len(dead), removed_bytes, moved_chunks)

    def _remove(self, dead: list[Segment]) -> fx.Steps[None]:
        for segment in dead:
            yield from fx.remove(segment.path)
            self._segments.discard(segment)
        if dead:
            yield from fx.sync_directory(self._paths.segments)

    def _most_wasteful(self) -> Segment | None:
        candidates = [
            (not segment.is_suspect, needed_bytes / segment.end, segment.number, segment)
            for segment, needed_bytes in self._segments.closed()
            if segment.is_suspect or 2 * needed_bytes < segment.end
        ]
        return min(candidates)[-1] if candidates else None

    def _empty(self, segment: Segment) -> fx.Steps[int]:
        file = yield from fx.open_file(segment.path)
        metrics.compactions.inc()
        moved = yield from closing(file, self._move_all(segment, file))
        yield from self._log.flush()
        # A live record that the scan did not find has lost its header.
        if segment.live_bytes:
            for chunk, place in self._index.in_segment(segment.number):
                self._segments.lose(chunk, place)
        return moved

    def _move_all(self, segment: Segment, file: fx.File) -> fx.Steps[int]:
        moved = 0
        scan = SegmentScan(file, segment.end, segment.salt, with_data=True)
        while (window := (yield from scan.next_window())) is not None:
            living = [new for found in window if (new := self._to_move(segment, found)) is not None]
            for at in range(0, len(living), segment_batch_records_max):
                group = living[at : at + segment_batch_records_max]
                yield from self._log.append(group)
                moved += sum(new.is_published for new in group)
                metrics.bytes_rewritten.inc(sum(record_bytes(len(new.data)) for new in group))
        return moved

    def _to_move(self, segment: Segment, found: FoundRecord) -> NewRecord | None:
        """Return the record to write elsewhere, if it is live and readable."""
        record = found.record
        if record.kind is RecordKind.TOMBSTONE:
            if record.segment != segment.number:
                self._segments.keep_tombstone(record)
            return None
        place = IndexedPlace(record.version, record.length, segment.number, found.offset)
        if record.kind is RecordKind.SEAL or self._index.find(record.chunk) != place:
            return None
        if not found.intact:
            self._segments.lose(record.chunk, place)
            return None
        return NewRecord(record.chunk, record.version, found.sums, found.data, moved_from=place)
