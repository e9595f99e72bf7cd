"""Logs as events for streaming queries: loghub's real logs beside the checkout, or else generated ones.

An event is one line of a log: its time, its subject (`key`), its kind (`word`) and the line itself. Events are
staged as JSON lines, one file per batch. The last event, a sentinel, is far later than all others, so every window
and timer fires.

There are two sentinels, in two files. A driver may be killed after the file sink committed a batch and before
Spark did. The batch is then not computed again, because the sink has it, and its events never move the watermark.
Spark behaves so wherever the checkpoint is; a later event makes up for it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from peacefs.spark_connector.demo.input import REAL_LOG
from peacefs.spark_connector.demo.log_generator import generate_log

#: The environment variable that names another directory with loghub's logs.
LOGS_VARIABLE = "PEACEFS_LOGS"
#: Seconds from the last event to the first sentinel: more than any window, gap, timer and delay of the queries.
SENTINEL_AFTER_S = 7200
_BETWEEN_SENTINELS_S = 60
_GENERATED_LINES = 2000


@dataclass(frozen=True, slots=True)
class Event:
    """`at` in s since 1970; `number` is the line's place in the log."""

    number: int
    at: int
    key: str
    word: str
    line: str


@dataclass(frozen=True, slots=True)
class LogForm:
    """How to parse one log: the place and format of its time stamp, and the groups for key and word."""

    file: str
    pattern: str
    stamp: str


FORMS = (
    LogForm(
        "OpenSSH_2k.log", r"(?P<at>\w+ +\d+ [\d:]+) \S+ sshd\[(?P<key>\d+)\]: (?P<word>\w+)", "%b %d %H:%M:%S"
    ),
    LogForm("HDFS_2k.log", r"(?P<at>\d{6} \d{6}) \d+ \w+ (?P<word>\S+): .*?(?P<key>blk_-?\d+)", "%y%m%d %H%M%S"),
    LogForm(
        "Apache_2k.log",
        r"\[(?P<at>\w+ \w+ \d+ [\d:]+ \d+)\] \[(?P<word>\w+)\] (?P<key>\S+ ?\S*)",
        "%a %b %d %H:%M:%S %Y",
    ),
    LogForm(
        "Spark_2k.log", r"(?P<at>[\d/]+ [\d:]+) \w+ (?P<word>[\w.$]+): (?P<key>\w+ ?[\w.]*)", "%y/%m/%d %H:%M:%S"
    ),
)


def read_events(form: LogForm) -> list[Event]:
    """Return the events of one log in order of arrival. Lines without key have the key `-`."""
    pattern, events = re.compile(form.pattern), []
    for number, line in enumerate(_lines(form)):
        if found := pattern.match(line):
            stamp = found["at"]
            text, style = (
                (f"2024 {stamp}", f"%Y {form.stamp}") if "y" not in form.stamp.lower() else (stamp, form.stamp)
            )
            try:
                at = int(datetime.strptime(text, style).replace(tzinfo=UTC).timestamp())
            except ValueError:
                # A made-up log has a few impossible time stamps, which are dropped.
                continue
            events.append(Event(number, at, found["key"], found["word"], line))
    assert len(events) > 100, f"{form.file} is not what it was"
    return events


def disorder_s(events: Iterable[Event]) -> int:
    """Return the longest time by which an event lies behind the latest event before it."""
    latest, most = 0, 0
    for event in events:
        latest = max(latest, event.at)
        most = max(most, latest - event.at)
    return most


def stage(events: Sequence[Event], parts: int) -> dict[str, bytes]:
    """Write the events' parts by name, then the sentinels."""
    staged = {}
    for part in range(parts):
        first, after = (len(events) * edge // parts for edge in (part, part + 1))
        staged[f"{part:05}.json"] = _json_lines(events[first:after])
    horizon = max(event.at for event in events) + SENTINEL_AFTER_S
    for number, at in ((-1, horizon), (-2, horizon + _BETWEEN_SENTINELS_S)):
        staged[f"{len(staged):05}.json"] = _json_lines([Event(number, at, "", "sentinel", "")])
    return staged


def _json_lines(events: Iterable[Event]) -> bytes:
    return "".join(json.dumps(asdict(event)) + "\n" for event in events).encode()


def _lines(form: LogForm) -> list[str]:
    directory = Path(os.environ.get(LOGS_VARIABLE) or REAL_LOG.parent)
    real = directory / form.file
    if real.is_file():
        return real.read_text("utf-8", errors="replace").splitlines()
    assert form is FORMS[0], f"{real} is missing: name the directory with loghub's logs in {LOGS_VARIABLE}"
    return list(generate_log(1, _GENERATED_LINES))


def available() -> list[LogForm]:
    """Return the logs that exist. The first is always present, made up if necessary."""
    directory = Path(os.environ.get(LOGS_VARIABLE) or REAL_LOG.parent)
    return [FORMS[0], *(form for form in FORMS[1:] if (directory / form.file).is_file())]
