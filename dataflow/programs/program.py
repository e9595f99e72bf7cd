"""Run a query from a program until it ends or is told to stop, in the same way by hand and under an agent."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Final

from peacefs.client.control.addresses import split_uri
from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints, UnitCheckpoints
from peacefs.dataflow.hosts.edge_run import EdgeRun, RunOptions
from peacefs.dataflow.hosts.interface import Sink, Source
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.hosts.peace_checkpoints import PeaceCheckpoints
from peacefs.dataflow.hosts.query_run import HostedRun
from peacefs.dataflow.hosts.run_events import CheckpointTaken, RunEvent
from peacefs.dataflow.query.query import Query
from peacefs.dataflow.recovery.technique import Technique
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.values.query_runs import without_run

from .progress import ProgressReporter

# How long a query that should stop may take for its last checkpoints, in total and without any progress.
dataflow_stop_s_max: Final = 6.0
dataflow_stop_idle_s: Final = 1.5


_POLL_S = 0.05
_STOPPED_STATUS = 128 + signal.SIGTERM


def run(
    query: Query,
    technique: Technique,
    sources: Mapping[str, Source],
    sinks: Mapping[str, Sink],
    *,
    nodes: int = 2,
    checkpoints: Path | str = "checkpoints",
    bounds: Bounds | None = None,
) -> None:
    """Run a query on `nodes` processes of this machine, and return when its sources have ended.

    Continues from the checkpoints that are there. If an agent has started this program, they are in the query's
    directory of the cluster, and `checkpoints` is not used. SIGTERM stops the query with a last checkpoint. Call
    it from the main thread. Ends the program with status 1 and one line on standard error if the query fails, and
    with status 143 if it was told to stop.
    """
    stop = threading.Event()
    reporter = ProgressReporter(query.network())

    def told(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = signal.signal(signal.SIGTERM, told)
    try:
        with reporter:
            host = LocalProcesses(nodes, _store(checkpoints), bounds=bounds)
            _run_until(stop, query, technique, sources, sinks, host, reporter)
    except PeacefsError as fault:
        print(f"query {query.name!r} failed: {fault.message}", file=sys.stderr, flush=True)  # noqa: T201
        sys.exit(1)
    finally:
        signal.signal(signal.SIGTERM, before)
    if stop.is_set():
        sys.exit(_STOPPED_STATUS)


def _store(directory: Path | str) -> UnitCheckpoints:
    """Return the directory of the cluster that the agent names, or else a directory of this machine."""
    given = os.environ.get("PEACEFS_CHECKPOINT")
    if not given:
        return DirectoryCheckpoints(Path(directory))
    _, location = split_uri(given)
    return PeaceCheckpoints(os.environ["PEACEFS_COORDINATOR"], without_run(location), location=location)


def _run_until(
    stop: threading.Event,
    query: Query,
    technique: Technique,
    sources: Mapping[str, Source],
    sinks: Mapping[str, Sink],
    host: LocalProcesses,
    reporter: ProgressReporter,
) -> None:
    last = _LastCheckpoints()

    def noted(now_s: float, event: RunEvent) -> None:
        last.noted(now_s, event)
        reporter.noted(event)

    options = RunOptions(resume=technique.takes_checkpoints, observer=noted)
    with host.start(query.network(), technique, sources, sinks, options) as running:
        reporter.follow(running)
        while not stop.is_set():
            try:
                running.wait(_POLL_S)
            except TimeoutError:
                continue
            return
        last.take(running, {plan.name for plan in query.network().units})


class _LastCheckpoints:
    """Waits for the last checkpoints of a query that should stop. Without them it would read more rows again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._awaited: set[str] = set()
        self._since_s = 0.0

    def noted(self, now_s: float, event: RunEvent) -> None:
        if isinstance(event, CheckpointTaken):
            with self._lock:
                self._awaited.discard(event.unit)
                self._since_s = now_s

    def take(self, running: HostedRun, units: set[str]) -> None:
        """Have all units write checkpoints. Return soon if they have none to write."""
        if not isinstance(running, EdgeRun):
            return
        begun_s = time.monotonic()
        with self._lock:
            self._awaited, self._since_s = units, begun_s
        running.hold_sources()
        running.take_checkpoints()
        while True:
            with self._lock:
                awaited, since_s = bool(self._awaited), self._since_s
            now_s = time.monotonic()
            if not awaited or now_s - since_s > dataflow_stop_idle_s or now_s - begun_s > dataflow_stop_s_max:
                return
            time.sleep(_POLL_S)
