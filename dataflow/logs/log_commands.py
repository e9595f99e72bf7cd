"""`peacefs stream ls`, `cat`, `tail` and `trim`."""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from peacefs.client.command_line.listing import print_line
from peacefs.client.command_line.presentation import human_size, printable
from peacefs.client.command_line.session import Session
from peacefs.dataflow.limits import stream_log_poll_s
from peacefs.dataflow.model.batches import Batch
from peacefs.dataflow.model.durations import microseconds
from peacefs.protocol.errors import FileNotFound, LogDamaged

from .log_catalogue import LogAddress, LogSummary, find_logs, log_address, require_log, summarise
from .log_reader import LogPlace, LogReader
from .log_rows import as_json, as_text, time_us
from .stream_log import trim

_HEADINGS = ("FIRST", "LAST", "SEGMENTS", "SIZE", "TIME", "PATH")
_NUMBERS = 4


@dataclass(frozen=True)
class RowStyle:
    """How rows are printed: one JSON object per line, or tab-separated values, optionally numbered."""

    as_json: bool
    numbered: bool = False


def list_logs(session: Session, texts: Sequence[str], *, as_json: bool) -> None:
    """Print every log at or below each path."""
    found: list[LogSummary] = []
    for text in texts:
        with session.errors.about(text):
            for address in find_logs(session, text):
                try:
                    found.append(summarise(address))
                except LogDamaged as error:
                    session.errors.say(address.text, error.message)
    if as_json:
        for summary in found:
            print_line(msgspec.json.encode(summary).decode())
    elif found:
        rows = [_HEADINGS, *map(_row, found)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
        for row in rows:
            cells = [
                cell.rjust(width) if column < _NUMBERS else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            print_line("  ".join(cells).rstrip())


def _row(summary: LogSummary) -> tuple[str, ...]:
    return (
        str(summary.first),
        str(summary.last),
        str(summary.segments),
        human_size(summary.bytes),
        summary.time or "-",
        summary.path,
    )


def print_logs(
    session: Session,
    texts: Sequence[str],
    style: RowStyle,
    *,
    first: int | None,
    upto: int | None,
    since: str | None,
) -> None:
    """Print the rows of each log from number `first`, or from a time, up to number `upto`."""
    since_us = time_us(since) if since is not None else None
    for text in texts:
        with _about(session, text):
            address = log_address(session, text)
            with address.open() as (store, stream):
                require_log(address, store, stream)
                reader = LogReader(store, stream)
                begin = first if first is not None else reader.end().first
                if since_us is not None:
                    at = reader.number_at(since_us)
                    if at is None:
                        continue
                    begin = max(begin, at)
                for batch in reader.read(begin - 1, upto=upto):
                    _print(batch, style)
                _say_torn(address, reader, upto)


def follow_log(session: Session, text: str, style: RowStyle, *, lines: str, follow: bool) -> None:
    """Print the last rows of a log, or those from row N for `+N`.

    With `follow`, also print new rows as they arrive, until Ctrl-C.
    """
    with _about(session, text):
        address = log_address(session, text)
        with address.open() as (store, stream):
            require_log(address, store, stream)
            reader = LogReader(store, stream)
            end = reader.end()
            count = int(lines.removeprefix("+"))
            begin = count if lines.startswith("+") else end.place.number - count + 1
            place = LogPlace(max(begin, end.first) - 1)
            for _ in itertools.count() if follow else range(1):
                for batch, behind in reader.read_places(place):
                    _print(batch, style)
                    place = behind
                if follow:
                    sys.stdout.flush()
                    time.sleep(stream_log_poll_s)
            if not follow:
                _say_torn(address, reader, None)


def trim_log(
    session: Session,
    text: str,
    *,
    upto: int | None,
    before: str | None,
    older_than: str | None,
    dry_run: bool,
    now_us: int,
) -> None:
    """Delete the segments whose rows are all up to a number, or before a time, except the last segment."""
    with _about(session, text):
        address = log_address(session, text)
        with address.open() as (store, stream):
            require_log(address, store, stream)
            reader = LogReader(store, stream)
            number = upto
            if number is None:
                since_us = (
                    time_us(before) if before is not None else now_us - microseconds(older_than or "", "the age")
                )
                at = reader.number_at(since_us)
                number = (reader.end().place.number + 1 if at is None else at) - 1
            old = store.segments(stream)
            gone = [
                (segment, length, following - 1)
                for (segment, length), (following, _) in itertools.pairwise(old)
                if following - 1 <= number
            ]
            if not dry_run:
                trim(store, stream, number)
            size = human_size(sum(length for _, length, _ in gone))
            verb = "would go" if dry_run else "went"
            rows = f"rows {gone[0][0]} to {gone[-1][2]}" if gone else "no rows"
            print_line(f"{text}: {len(gone)} of {len(old)} segments {verb}: {rows}, {size}")


def _print(batch: Batch, style: RowStyle) -> None:
    if style.as_json:
        for line in as_json(batch):
            print_line(line)
    else:
        for columns in as_text(batch, numbered=style.numbered):
            print_line(*columns)


def _say_torn(address: LogAddress, reader: LogReader, upto: int | None) -> None:
    """Say on stderr that incomplete bytes follow the last row. This is not an error: a writer may be active."""
    end = reader.end()
    if upto is None and end.torn_bytes:
        sys.stderr.write(
            f"peacefs: stream: `{printable(address.text)}': {end.torn_bytes} bytes behind row {end.place.number} "
            "are no whole record: they are being written, or their writer died; its next start cuts them\n"
        )


@contextlib.contextmanager
def _about(session: Session, text: str) -> Iterator[None]:
    """Report an error of one log, and continue with the next."""
    with session.errors.about(text):
        try:
            yield
        except (LogDamaged, FileNotFound) as error:
            # If rows were trimmed, the error says so, which is more than that the file does not exist.
            sys.stdout.flush()
            session.errors.say(text, error.message)
