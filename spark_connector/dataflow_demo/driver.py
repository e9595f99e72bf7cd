"""The driver of the demo: `python -m peacefs.spark_connector.dataflow_demo.driver plan.json`.

Runs the query on Spark's executors and reports events on standard output. Ends when its standard input ends.
"""

from __future__ import annotations

import os
import sys
import threading
from bisect import bisect_left
from pathlib import Path
from time import monotonic
from typing import Any, Final

import msgspec
import pyarrow as pa

from peacefs.dataflow.hosts import run_events
from peacefs.dataflow.hosts.edge_run import EdgeRun, RunOptions
from peacefs.dataflow.hosts.peace_checkpoints import PeaceCheckpoints
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.service.lifeline import when_parent_dies
from peacefs.spark_connector.demo.auth_log import YearAssumption
from peacefs.spark_connector.demo.staging import read_lines
from peacefs.spark_connector.executors_host import SparkExecutors
from peacefs.spark_connector.local_executors import executor_of, session_of_executors

from . import news
from .load import Feed, make_load
from .query import SINK, SOURCE, WINDOWS, Row, batch_rows, network, rows_of

# Longer than usual, because JVMs start on the same machine meanwhile.
dataflow_demo_node_timeout_s: Final = 3.0


_PROGRESS_S = 0.5


def say(what: news.News) -> None:
    sys.stdout.write(news.encode(what).decode() + "\n")
    sys.stdout.flush()


class Driver:
    """Run the plan's query once, and report its events and rows; then compute the same rows as a batch."""

    def __init__(self, plan: news.Plan, session: Any) -> None:
        self._plan = plan
        self._session = session
        self._years = YearAssumption(*plan.years)
        log = list(read_lines(map(Path, plan.logs)))
        load = make_load(log, self._years, plan.lines, plan.lateness_s + plan.size_s)
        self._input = Path(plan.directory, "input")
        load.write(self._input)
        self._feed = Feed(load, plan.lines_per_s, plan.batch_lines)
        self._streamed: list[Row] = []
        self._lock = threading.Lock()

    def run(self) -> None:
        plan = self._plan
        checkpoints = PeaceCheckpoints(plan.coordinator, plan.checkpoints)
        host = SparkExecutors(self._session, plan.nodes, checkpoints, node_timeout_s=dataflow_demo_node_timeout_s)
        begun = threading.Event()
        with host.start(
            network(self._years, plan.size_s, plan.every_s, plan.lateness_s),
            SGuard(interval_s=plan.checkpoint_every_s),
            {SOURCE: _after(begun, self._feed)},
            {SINK: self._take},
            RunOptions(observer=self._observe),
        ) as run:
            assert isinstance(run, EdgeRun)
            self._await_units(run)
            begun.set()
            self._watch(run)
        checkpoints.close()
        self._say(news.RunDone(monotonic(), self._feed.offered, self._streamed))
        found = batch_rows(self._session, f"file://{self._input}", self._years, plan.size_s, plan.every_s)
        self._say(news.BatchRows(found))

    def _await_units(self, run: EdgeRun) -> None:
        units = ("lines", WINDOWS, "news")
        waiting = threading.Event()
        while any(run.session_of(unit) is None for unit in units):
            waiting.wait(0.05)
        found = {unit: str(run.session_of(unit)) for unit in units}
        executors = {unit: executor_of(int(session.partition("-")[0])) for unit, session in found.items()}
        self._say(news.RunBegun(monotonic(), executors))

    def _watch(self, run: EdgeRun) -> None:
        while True:
            try:
                run.wait(_PROGRESS_S)
            except TimeoutError:
                self._say(news.Progress(monotonic(), self._feed.offered))
            else:
                return

    def _take(self, batch: pa.RecordBatch) -> None:
        now_s = monotonic()
        self._streamed += rows_of(batch)
        feed = self._feed
        ends = batch.column("window_end").cast(pa.int64()).to_pylist()
        for end_us in sorted(set(ends)):
            # A window is complete at the first line that is `lateness_s` later than the window's end.
            at = bisect_left(feed.latest_us, end_us + self._plan.lateness_s * 1_000_000)
            if at < len(feed.latest_us):
                offered_s = feed.offered_s[at]
                self._say(news.Delivered(now_s, offered_s, (now_s - offered_s) * 1000, ends.count(end_us)))

    def _observe(self, at_s: float, event: run_events.RunEvent) -> None:
        match event:
            case run_events.NodeLost(node):
                self._say(news.Lost(at_s, node))
            case run_events.CheckpointTaken(unit, _, cost):
                self._say(
                    news.Checkpointed(
                        at_s,
                        unit,
                        cost.pages_written,
                        cost.pages_referred,
                        cost.bytes_written,
                        cost.pause_us / 1000,
                        cost.stored_us / 1000,
                    )
                )
            case run_events.RecoveryMeasured(unit, _, load_s, replay_s):
                self._say(news.RecoverySeen(at_s, unit, load_s, replay_s))

    def _say(self, what: news.News) -> None:
        with self._lock:
            say(what)


def _after(begun: threading.Event, feed: Feed) -> Any:
    begun.wait()
    yield from feed


def start_session(plan: news.Plan) -> Any:
    """Start a session with one-core executors in processes of their own."""
    partitions = {"spark.sql.shuffle.partitions": "4"}
    return session_of_executors(Path(plan.directory), plan.nodes, "failed log-ins", settings=partitions)


def main(arguments: list[str]) -> None:
    plan = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=news.Plan)
    when_parent_dies(sys.stdin.fileno(), lambda: os._exit(1))
    session = start_session(plan)
    Driver(plan, session).run()
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
