"""Cuts a log into the parts that the stream reads one by one, and ends it with a sentinel.

A streaming aggregation in append mode gives a window out when the watermark has passed its end, so the last
windows of any input would never come. The sentinel part holds one line, of nobody's log-in, whose instant is
far enough after all others.

Parts hold clean UTF-8 and line feeds only, and their modification times rise, which is the order in which
Spark's file source takes them.
"""

from __future__ import annotations

import gzip
import math
import os
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import islice
from pathlib import Path

from peacefs.protocol.errors import BadRequest

from .log_measure import LogMeasure

_SENTINEL_MARGIN = timedelta(seconds=60)


def read_lines(logs: Iterable[Path]) -> Iterator[str]:
    """The lines of logs one after the other, whatever their line ends; bytes that are no UTF-8 become U+FFFD.

    A name that ends in `.gz` means a compressed log.
    """
    for path in logs:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8", errors="replace", newline=None) as log:
            for line in log:
                yield line.rstrip("\n")


def watermark_delay_s(measured: LogMeasure) -> int:
    """A delay that drops no line of the log, in whole seconds."""
    return math.ceil(measured.disorder_s) + 1


def stage(lines: Iterator[str], measured: LogMeasure, directory: Path, parts: int, window_s: int) -> list[Path]:
    """Write at most `parts` parts of about the same number of lines, then the sentinel part. Makes `directory`.

    `measured` are the measures of these lines.
    """
    if measured.last is None:
        raise BadRequest("the log holds no line with a time stamp")
    directory.mkdir(parents=True)
    written: list[Path] = []
    for number in range(parts):
        first, after = (measured.lines * edge // parts for edge in (number, number + 1))
        if first < after:
            written.append(_part(directory, len(written), islice(lines, after - first)))
    horizon = timedelta(seconds=window_s + watermark_delay_s(measured)) + _SENTINEL_MARGIN
    sentinel = f"{(measured.last + horizon).isoformat(timespec='seconds')} peacefs staging: the log ends here"
    written.append(_part(directory, len(written), [sentinel]))
    return written


def _part(directory: Path, number: int, lines: Iterable[str]) -> Path:
    part = directory / f"part-{number:05}.log"
    with part.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
    os.utime(part, (number + 1, number + 1))
    return part
