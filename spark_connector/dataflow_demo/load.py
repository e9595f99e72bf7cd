"""The demo's load: a log repeated as often as needed, each time shifted later, so that it forms one long log."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa

from peacefs.dataflow.model.stream_type import TIME
from peacefs.spark_connector.demo.auth_log import (
    RFC3339_STAMP,
    TRADITIONAL_STAMP,
    YearAssumption,
    parse_line,
)

from .query import LINES

_stamp = re.compile(f"(?:{TRADITIONAL_STAMP}|{RFC3339_STAMP})")
_FILE_LINES = 20_000


@dataclass(frozen=True, slots=True)
class Load:
    """Lines in order of arrival; for each, the latest instant so far, in microseconds since 1970."""

    lines: Sequence[str]
    latest_us: Sequence[int]

    def write(self, directory: Path) -> None:
        """Write all lines to files, for Spark's batch."""
        directory.mkdir(parents=True)
        for first in range(0, len(self.lines), _FILE_LINES):
            text = "".join(f"{line}\n" for line in self.lines[first : first + _FILE_LINES])
            (directory / f"lines-{first:09}.log").write_text(text, "utf-8", newline="\n")


def make_load(log: Sequence[str], years: YearAssumption, lines: int, gap_s: int) -> Load:
    """Repeat a log until it has `lines` lines. Each repetition begins `gap_s` after the previous one has ended."""
    read: list[tuple[datetime | None, str]] = []
    for line in log:
        at = parse_line(line, years).at
        stamp = _stamp.match(line)
        read.append((at, line if at is None or stamp is None else line[stamp.end() :]))
    instants = [at for at, _ in read if at is not None]
    span = max(instants) - min(instants) + timedelta(seconds=gap_s)
    made: list[str] = []
    latest_us: list[int] = []
    latest = 0
    for number in range(lines):
        copy, place = divmod(number, len(read))
        at, text = read[place]
        if at is not None:
            shifted = at + copy * span
            text = f"{shifted.isoformat(timespec='microseconds')} {text}"
            latest = max(latest, int(shifted.timestamp()) * 1_000_000 + shifted.microsecond)
        made.append(text)
        latest_us.append(latest)
    return Load(made, latest_us)


class Feed:
    """A source that yields batches of a load at a given rate, and records when each batch was offered."""

    def __init__(self, load: Load, lines_per_s: int, batch_lines: int) -> None:
        self._load = load
        self._lines_per_s = lines_per_s
        self._batch_lines = batch_lines
        #: For each batch, the latest instant so far, and the time at which the batch was offered.
        self.latest_us: list[int] = []
        self.offered_s: list[float] = []
        self.offered = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        begun_s = time.monotonic()
        for first in range(0, len(self._load.lines), self._batch_lines):
            lines = self._load.lines[first : first + self._batch_lines]
            time.sleep(max(begun_s + first / self._lines_per_s - time.monotonic(), 0))
            numbers = pa.array(range(first, first + len(lines)), pa.int64()).cast(TIME)
            self.latest_us.append(self._load.latest_us[first + len(lines) - 1])
            self.offered_s.append(time.monotonic())
            self.offered = first + len(lines)
            yield pa.RecordBatch.from_arrays([pa.array(lines, pa.string()), numbers], schema=LINES)
