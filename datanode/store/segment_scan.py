"""Scans a segment from its first record to its last, skipping damaged parts."""

from __future__ import annotations

from typing import Final, NamedTuple

from peacefs.protocol.checksums import block_checksums
from peacefs.protocol.limits import KIB, MIB
from peacefs.runtime import effects as fx

from .layout import (
    HEADER_AND_SUMS_BYTES_MAX,
    HEADER_BYTES,
    RECORD_MAGIC,
    Record,
    RecordKind,
    record_bytes,
    sums_bytes,
    unpack_record,
)

# Number of bytes that a scan reads at once: if it reads only headers, and with the data.
scan_headers_window_bytes: Final = 64 * KIB
scan_data_window_bytes: Final = 1 * MIB


class FoundRecord(NamedTuple):
    """A record with an intact header. `sums` and `data` are empty unless the scan reads data.

    `intact` is False if the data was read and does not match its checksums.
    """

    offset: int
    record: Record
    sums: bytes
    data: bytes
    intact: bool


class SegmentScan:
    """One pass over an open segment of `size` bytes."""

    def __init__(self, file: fx.File, size: int, salt: int, *, with_data: bool) -> None:
        self._file = file
        self._size = size
        self._salt = salt
        self._with_data = with_data
        self._window_bytes = scan_data_window_bytes if with_data else scan_headers_window_bytes
        self._at = 0
        #: The end of the last intact record.
        self.sound_end = 0
        #: Bytes before `sound_end` that belong to no intact record.
        self.damaged_bytes = 0

    @property
    def torn_bytes(self) -> int:
        """Bytes after the last intact record. Known at the end of the scan."""
        return self._size - self.sound_end

    def next_window(self) -> fx.Steps[list[FoundRecord] | None]:
        """Return the records of the next window, maybe none; None at the end of the segment."""
        if self._at >= self._size:
            return None
        base = self._at
        try:
            window = yield from fx.read_at(self._file, base, self._window_bytes)
        except OSError:
            # A part that the disk cannot read is treated like other damage.
            self._at = base + scan_headers_window_bytes
            return []
        is_last = base + len(window) >= self._size or len(window) < self._window_bytes
        # Data to be read must be inside the window; data to be skipped must only be inside the file.
        limit = len(window) if self._with_data else self._size - base
        found = []
        at = 0
        while at < len(window):
            record = unpack_record(window, at, self._salt)
            if record is not None and at + record_bytes(record.length) <= limit:
                found.append(self._record_at(window, at, base, record))
                at += record_bytes(record.length)
            elif not is_last and (at + HEADER_AND_SUMS_BYTES_MAX > len(window) or (record and self._with_data)):
                break
            else:
                at = _next_candidate(window, at + 1, is_last=is_last)
        self._at = base + at if window else self._size
        assert self._at > base
        return found

    def _record_at(self, window: bytes, at: int, base: int, record: Record) -> FoundRecord:
        end = at + record_bytes(record.length)
        sums, data, intact = b"", b"", True
        if self._with_data and record.kind is RecordKind.CHUNK:
            data_at = at + HEADER_BYTES + sums_bytes(record.length)
            sums = window[at + HEADER_BYTES : data_at]
            data = window[data_at:end]
            intact = block_checksums(data) == sums
        if intact:
            self.damaged_bytes += base + at - self.sound_end
            self.sound_end = base + end
        return FoundRecord(base + at, record, sums, data, intact)


def _next_candidate(window: bytes, start: int, *, is_last: bool) -> int:
    """Return where the next record may begin: at a magic number, or at a part of one at the window's end."""
    found = window.find(RECORD_MAGIC, start)
    if found >= 0:
        return found
    return len(window) if is_last else max(start, len(window) - len(RECORD_MAGIC) + 1)
