"""The demo of dataflows: a query on Spark's executors loses one, later a datanode, and its rows equal a batch's.

    a cluster is started, and a driver with three executors, each a node of the dataflow
    the executor of the unit with the state is killed with SIGKILL
    it is made up for by SGuard: another node loads the checkpoint, and producers replay
    a datanode is killed with SIGKILL
    the rows are compared with those of Spark over all lines at once

Everything runs on this machine, in one directory, and nothing of it is left running.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console

from peacefs.client.control.api import CoordinatorApi, user_of
from peacefs.client.control.http import CoordinatorHttp
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import QueryFailed, StartupError
from peacefs.spark_connector.demo.input import DemoInput, choose_input
from peacefs.spark_connector.demo.scratch import scratch_environment
from peacefs.spark_connector.demo.screen import DemoScreen
from peacefs.spark_connector.demo.staging import watermark_delay_s
from peacefs.spark_connector.demo.work_directory import work_directory
from peacefs.spark_connector.java import JavaRuntime, find_java, java_environment

from . import news
from .measures import Report, checkpoints, differences, latencies
from .query import WINDOWS
from .report import print_report

_DRIVER = "peacefs.spark_connector.dataflow_demo.driver"
_CHECKPOINTS = "/dataflow/failed-logins"
_DATANODES, _NODES = 4, 3
_SIZE_S, _EVERY_S = 3600, 600
_CHECKPOINT_EVERY_S = 1.0
_BATCHES_PER_S = 20
# The kills, as shares of the load.
_KILL_EXECUTOR_AT, _KILL_DATANODE_AT = 0.4, 0.7
_LOG_LINES_SHOWN = 15


@dataclass(frozen=True, slots=True)
class Options:
    """`input` None: the demo's own choice. `directory` None: a temporary one. `keep` leaves everything there."""

    input: Path | None = None
    lines: int = 120_000
    lines_per_s: int = 4_000
    directory: Path | None = None
    keep: bool = False
    json: bool = False


def run_demo(options: Options) -> int:
    """Return the exit status: 0 if the rows are equal, 1 if not. Raises StartupError, QueryFailed."""
    console = Console(stderr=options.json, markup=False, highlight=False)
    for module, extra in (("pyspark", "spark"), ("cloudpickle", "dataflow"), ("numba", "state")):
        if importlib.util.find_spec(module) is None:
            raise StartupError(f"the demo needs {module}: pip install 'peacefs[spark,dataflow]' (extra {extra!r})")
    if options.lines < 1000 or options.lines_per_s < 100:
        raise StartupError("the demo needs 1,000 lines or more, at 100 lines a second or more")
    java = find_java()
    screen = DemoScreen(console, "lines", total=options.lines, subject_width=10)
    work = work_directory(options.directory, keep=options.keep, prefix="peacefs-dataflow-")
    with work as directory, screen.shown():
        report = _DataflowDemo(options, directory, choose_input(options.input, directory), java, screen).run()
        if options.keep:
            screen.step("kept", str(directory))
    if options.json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    else:
        print_report(console, report)
    return 0 if report.equal else 1


@dataclass
class _Seen:
    """The events so far."""

    begun: news.RunBegun | None = None
    killed_s: float = 0.0
    killed_executor: int = 0
    detected_s: float = 0.0
    killed_datanode: str = ""
    recovered: news.RecoverySeen | None = None
    again_s: float = 0.0
    done: news.RunDone | None = None
    batch: news.BatchRows | None = None

    def __post_init__(self) -> None:
        self.delivered: list[news.Delivered] = []
        self.checkpoints: list[news.Checkpointed] = []


class _DataflowDemo:
    """One run of the demo: it starts a cluster and a driver, follows the driver, and kills twice.

    The executor with the windows is killed once, after a checkpoint of them is stored; then a datanode, after rows
    have come again. Whatever was started has ended when `run` returns or raises. `run_demo` makes it and calls
    `run` once.
    """

    def __init__(
        self, options: Options, directory: Path, log: DemoInput, java: JavaRuntime, screen: DemoScreen
    ) -> None:
        self._options, self._directory, self._log = options, directory, log
        self._java, self._screen = java, screen
        self._seen = _Seen()

    def run(self) -> Report:
        """Run the demo. Raises QueryFailed after showing the driver's last words."""
        began_s = time.monotonic()
        step = self._screen.step
        step("input", f"{self._log.description}, {self._options.lines:,} lines of it and its repetitions")
        with LocalCluster(self._directory / "cluster", _DATANODES, port=0) as cluster:
            step("cluster", f"{_DATANODES} datanodes, {cluster.http_address}")
            subprocess.run([sys.executable, "-m", "peacefs.state.warm"], check=True, capture_output=True)
            step("kernels", "are compiled")
            with self._driver(cluster) as driver:
                step("spark", f"starts: {_NODES} executors in processes of their own, Java {self._java.version}")
                assert driver.stdout is not None
                for said in driver.stdout:
                    if said.startswith(b"{"):
                        self._take(news.decode(said), cluster)
                status = driver.wait()
        if status or self._seen.batch is None:
            for line in self._last_words():
                step("", line)
            raise QueryFailed(f"the driver ended with status {status} and no result")
        return self._report(time.monotonic() - began_s)

    # -- what the driver says -----------------------------------------------------------------------------

    def _take(self, said: news.News, cluster: LocalCluster) -> None:
        seen, step = self._seen, self._screen.step
        match said:
            case news.RunBegun():
                seen.begun = said
                step("query", f"units on executors {', '.join(map(str, said.executors.values()))}")
            case news.Progress(_, lines):
                self._screen.done(lines)
                self._kill_when_due(lines, cluster)
            case news.Lost(at_s, node) if seen.killed_s and not seen.detected_s:
                seen.detected_s = at_s
                step("", f"{node} is noticed to be gone after {(at_s - seen.killed_s) * 1000:.0f} ms")
            case news.RecoverySeen() if seen.killed_s and (seen.recovered is None or said.unit == WINDOWS):
                seen.recovered = said
                step("", f"unit {said.unit} goes on elsewhere: loaded in {said.load_s * 1000:.0f} ms")
            case news.Checkpointed():
                seen.checkpoints.append(said)
            case news.Delivered():
                seen.delivered.append(said)
                if seen.detected_s and not seen.again_s and said.at_s > seen.detected_s:
                    seen.again_s = said.at_s
                    step("", f"rows come again {(said.at_s - seen.killed_s) * 1000:.0f} ms after the kill")
            case news.RunDone(_, lines, rows):
                seen.done = said
                self._screen.done(lines)
                step("done", f"{len(rows):,} rows; Spark counts all lines at once")
            case news.BatchRows():
                seen.batch = said

    def _kill_when_due(self, lines: int, cluster: LocalCluster) -> None:
        seen, share = self._seen, lines / self._options.lines
        stored = any(each.unit == WINDOWS for each in seen.checkpoints)
        if not seen.killed_s and share >= _KILL_EXECUTOR_AT and stored and seen.begun is not None:
            seen.killed_executor = seen.begun.executors[WINDOWS]
            seen.killed_s = time.monotonic()
            os.kill(seen.killed_executor, signal.SIGKILL)
            self._screen.step("kill", f"executor {seen.killed_executor}, on which unit {WINDOWS!r} is")
        elif seen.again_s and not seen.killed_datanode and share >= _KILL_DATANODE_AT:
            http = CoordinatorHttp(cluster.address)
            with contextlib.closing(CoordinatorApi(http, user_of(http, None))) as coordinator:
                datanodes = coordinator.cluster_status()["datanodes"]
            fullest = max(datanodes, key=lambda datanode: datanode["replicas"])
            victim = next(member for member in cluster.datanodes if member.node == fullest["node"])
            victim.kill()
            seen.killed_datanode = victim.node
            self._screen.step("kill", f"datanode {victim.node}, which held {fullest['replicas']:,} replicas")

    # -- the driver -----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _driver(self, cluster: LocalCluster) -> Iterator[subprocess.Popen[bytes]]:
        variables = {
            **os.environ,
            **java_environment(self._java, self._directory / "java"),
            **scratch_environment(self._directory / "scratch"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        with (self._directory / "driver.log").open("wb") as log:
            driver = subprocess.Popen(
                [sys.executable, "-m", _DRIVER, str(self._plan(cluster))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=variables,
            )
            try:
                yield driver
            finally:
                # It ends when its input does; what it has started ends with it.
                assert driver.stdin is not None
                driver.stdin.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    driver.wait(20)
                driver.kill()
                driver.wait()

    def _plan(self, cluster: LocalCluster) -> Path:
        measured, options = self._log.measured, self._options
        years = measured.years
        plan = news.Plan(
            coordinator=cluster.http_address,
            checkpoints=_CHECKPOINTS,
            logs=[str(log) for log in self._log.logs],
            directory=str(self._directory),
            lines=options.lines,
            lines_per_s=options.lines_per_s,
            batch_lines=max(options.lines_per_s // _BATCHES_PER_S, 1),
            size_s=_SIZE_S,
            every_s=_EVERY_S,
            lateness_s=watermark_delay_s(measured),
            years=(years.year, years.month, years.day),
            nodes=_NODES,
            checkpoint_every_s=_CHECKPOINT_EVERY_S,
        )
        path = self._directory / "plan.json"
        path.write_bytes(msgspec.json.encode(plan))
        return path

    def _last_words(self) -> Sequence[str]:
        return (self._directory / "driver.log").read_text("utf-8", "replace").splitlines()[-_LOG_LINES_SHOWN:]

    def _report(self, seconds: float) -> Report:
        seen = self._seen
        if seen.begun is None or seen.done is None or seen.batch is None or seen.recovered is None:
            raise QueryFailed("the query ended before the executor was killed and made up for: give it more lines")
        took_s = seen.done.at_s - seen.begun.at_s
        return Report(
            input=self._log.description,
            java=self._java.version,
            lines=seen.done.lines,
            rows=len(seen.done.streamed),
            seconds=round(took_s, 2),
            lines_per_s=round(seen.done.lines / took_s, 1),
            latency=latencies(seen.delivered, seen.killed_s, seen.again_s),
            checkpoints=checkpoints(seen.checkpoints),
            killed_executor=seen.killed_executor,
            killed_datanode=seen.killed_datanode,
            detect_s=round(seen.detected_s - seen.killed_s, 3),
            load_s=round(seen.recovered.load_s, 3),
            replay_s=round(seen.recovered.replay_s, 3),
            output_again_s=round(seen.again_s - seen.killed_s, 3),
            differences=differences(seen.done.streamed, seen.batch.rows),
            demo_seconds=round(seconds, 1),
        )
