"""Runs: starts of a query, each of which is the one writer of its checkpoint root until the next.

Who is given `<root>/.run-<run>` for `<root>` reads and lists the same directory, and may write to it for as long
as that is the latest run. The name travels in every path that is made from the one given: nothing else need know.
"""

from __future__ import annotations

import msgspec

from peacefs.protocol.ids import read, show

_PREFIX = ".run-"


class RunStatus(msgspec.Struct, frozen=True):
    """The latest run of a checkpoint root: the values of `/v1/checkpoints/runs`. Milliseconds since 1970.

    `run` is its number as people read it, `location` the root's path for its writer. `pid` is 0 if nobody said.
    """

    path: str
    run: str
    location: str
    user: str
    host: str
    pid: int
    since_ms: int
    #: When it said that it was over; it is the latest all the same, and may write.
    ended_ms: int | None
    #: When the root, or a directory right below it, last changed, whoever wrote.
    last_write_ms: int


class GivenRun(msgspec.Struct, frozen=True):
    """A run that a supervisor has begun for a driver, as it is told to that: `root` and `location` are URIs."""

    run: str
    root: str
    location: str


def component_of(run: int) -> str:
    """The component of a path that says that a run writes."""
    return _PREFIX + show(run)


def run_of(component: str) -> int | None:
    """The run that a component of a path stands for; None for any other name."""
    return read(component.removeprefix(_PREFIX)) if component.startswith(_PREFIX) else None


def without_run(path: str) -> str:
    """The same file or directory, whoever writes it."""
    if f"/{_PREFIX}" not in path:
        return path
    return "/".join(part for part in path.split("/") if run_of(part) is None) or "/"
