"""Cut a log into the parts that the stream reads one by one, and add a sentinel part at the end.

In append mode a streaming aggregation emits a window once the watermark has passed its end. So the last windows
would never be emitted. The sentinel part holds one line, without a log-in, that is late enough to complete them.

Parts contain only valid UTF-8 with line feeds. Their modification times ascend, the order of Spark's file source.
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
    """Yield the lines of all logs, whatever their line ends. Invalid UTF-8 becomes U+FFFD.

    A file whose name ends in `.gz` is decompressed.
    """
    for path in logs:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8", errors="replace", newline=None) as log:
            for line in log:
                yield line.rstrip("\n")


def watermark_delay_s(measured: LogMeasure) -> int:
    """Return the shortest delay, in whole seconds, with which no line of the log is dropped as late."""
    return math.ceil(measured.disorder_s) + 1


def stage(lines: Iterator[str], measured: LogMeasure, directory: Path, parts: int, window_s: int) -> list[Path]:
    """Write up to `parts` parts of equal numbers of lines, then the sentinel part. Makes `directory`.

    `measured` must be the measures of `lines`.
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
