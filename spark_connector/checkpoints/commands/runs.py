"""`peacefs checkpoint begin` and `runs`."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

import msgspec

from peacefs.client.command_line.listing import print_line
from peacefs.client.command_line.presentation import local_minute
from peacefs.client.command_line.report import table
from peacefs.client.command_line.session import Session
from peacefs.client.control.addresses import parse_address
from peacefs.client.control.query_runs import CheckpointRuns
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.values.query_runs import RunStatus

_HEADINGS = ("RUN", "USER", "HOST", "SINCE", "ENDED", "LAST WRITE", "PATH")


def begin_run_of(session: Session, text: str, *, host: str | None, pid: int | None, as_json: bool) -> None:
    """Begin a run and print its location for Spark. Raises PeacefsError."""
    place = session.place(_in_cluster(text))
    with CheckpointRuns(parse_address(place.files.address), place.files.user) as runs:
        # The parent, a shell, will start the driver, as its child or in its own place.
        begun = runs.begin(place.path, host=host or socket.gethostname(), pid=os.getppid() if pid is None else pid)
    if as_json:
        print_line(msgspec.json.encode(begun).decode())
    else:
        print_line(parse_address(place.files.address).webhdfs + begun.location)


def list_runs(session: Session, texts: Sequence[str], *, as_json: bool) -> None:
    """Print the latest run of each checkpoint root at or below each path."""
    found: list[RunStatus] = []
    for text in texts:
        with session.errors.about(text):
            place = session.place(_in_cluster(text))
            with CheckpointRuns(parse_address(place.files.address), place.files.user) as runs:
                found += runs.latest(place.path)
    if as_json:
        for run in found:
            print_line(msgspec.json.encode(run).decode())
    elif found:
        for line in table([_HEADINGS, *map(_row, found)], len(_HEADINGS)):
            print_line(line)


def _in_cluster(text: str) -> str:
    if text.startswith("file:"):
        raise BadRequest("a cluster keeps one writer of a checkpoint at a time; a local file system cannot")
    return text


def _row(run: RunStatus) -> tuple[str, ...]:
    return (
        run.run,
        run.user,
        f"{run.host} pid {run.pid}" if run.pid else run.host,
        local_minute(run.since_ms),
        "-" if run.ended_ms is None else local_minute(run.ended_ms),
        local_minute(run.last_write_ms),
        run.path,
    )
