"""Runs of a query. Each start is a run, and only the latest run may write to the checkpoint root.

The path `<root>/.run-<run>` shows the same directory as `<root>`, and is writable while that run is the latest.
All paths that a driver derives from it contain the run's name, so Spark needs no changes.
"""

from __future__ import annotations

import msgspec

from peacefs.protocol.ids import read, show

_PREFIX = ".run-"


class RunStatus(msgspec.Struct, frozen=True):
    """The latest run of a checkpoint root: the values of `/v1/checkpoints/runs`. Times are ms since 1970.

    `run` is its number as shown to people, `location` the root's path for its writer. `pid` is 0 if unknown.
    """

    path: str
    run: str
    location: str
    user: str
    host: str
    pid: int
    since_ms: int
    #: When the run reported its end. It remains the latest run and may still write.
    ended_ms: int | None
    #: When the root, or a directory directly below it, was last changed by any writer.
    last_write_ms: int


class GivenRun(msgspec.Struct, frozen=True):
    """A run that a supervisor began for a driver, as passed to the driver. `root` and `location` are URIs."""

    run: str
    root: str
    location: str


def component_of(run: int) -> str:
    """Return the path component that stands for a run."""
    return _PREFIX + show(run)


def run_of(component: str) -> int | None:
    """Return the run that a path component stands for; None for any other name."""
    return read(component.removeprefix(_PREFIX)) if component.startswith(_PREFIX) else None


def without_run(path: str) -> str:
    """Return the path without components that stand for runs."""
    if f"/{_PREFIX}" not in path:
        return path
    return "/".join(part for part in path.split("/") if run_of(part) is None) or "/"
