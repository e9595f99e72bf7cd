"""The demo: a streaming query checkpoints on its own peacefs, is killed, and its result is checked.

    a cluster starts; the log is cut into parts; a Spark query counts failed log-ins, one part per batch
    the query is killed in the middle of a batch: offsets/N exists, commits/N does not
    a datanode is killed
    the query restarts from its checkpoint, repeatedly if needed
    its output is compared, row for row, with one batch over the whole log

Everything runs on this machine in one directory. Afterwards no process is left.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import QueryFailed, StartupError
from peacefs.spark_connector.checkpoints.batches import Checkpoint
from peacefs.spark_connector.java import JavaRuntime, find_java, java_environment
from peacefs.spark_connector.query_progress import read_progress, spread

from .input import DemoInput, choose_input
from .query_plan import QueryPlan, QueryResult
from .query_process import QueryProcess
from .query_supervisor import QuerySupervisor
from .report import DemoReport, differences, new_console, print_report
from .scratch import scratch_environment
from .screen import DemoScreen
from .staging import read_lines, stage, watermark_delay_s
from .work_directory import work_directory

demo_repair_timeout_s: Final = 60.0
demo_repair_longest_s: Final = 900.0


_QUERY_MODULE = "peacefs.spark_connector.demo.failed_logins"
_CHECKPOINT = "/demo/checkpoint"
_OUTPUT = "/demo/output"
_DATANODES = 4
_WINDOW_S = 600
# Earlier batches are not killed, so that there is state to lose.
_KILL_FROM_BATCH = 3
#: Leaves at least one batch after the one that is killed.
BATCHES_MIN = _KILL_FROM_BATCH + 2
# How far into a batch it is killed, as a share of the shortest batch before.
_KILL_AFTER = 0.3
_REPAIR_POLL_S = 0.25
_LOG_LINES_SHOWN = 15


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options. Without `input` the demo chooses a log; without `directory` it uses a temporary one.

    `keep` leaves all files there. The log is cut into `batches` parts, if it has that many lines.
    """

    input: Path | None = None
    batches: int = 12
    directory: Path | None = None
    keep: bool = False
    json: bool = False


def run_demo(options: DemoOptions) -> int:
    """Run the demo and return its exit status: 0 if the stream's rows equal the batch's, else 1.

    Raises StartupError if something is missing, QueryFailed if the query does not finish.
    """
    if options.batches < BATCHES_MIN:
        raise StartupError(f"the demo needs {BATCHES_MIN} batches or more: it is killed in the middle of them")
    # With --json, standard output carries only the report.
    console = new_console(stderr=options.json)
    if importlib.util.find_spec("pyspark") is None:
        raise StartupError("the demo needs Spark: pip install 'peacefs[spark]'")
    java = find_java()
    screen = DemoScreen(console, "batches", subject_width=8)
    work = work_directory(options.directory, keep=options.keep, prefix="peacefs-demo-")
    with work as directory, screen.shown():
        report = _Demo(options, directory, choose_input(options.input, directory), java, screen).run()
        if options.keep:
            screen.step("kept", str(directory))
    if options.json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    else:
        print_report(console, report)
    return 0 if report.equal else 1


@dataclass(frozen=True, slots=True)
class _Ordeal:
    """The faults that were injected into the query's run."""

    killed_in_batch: int
    killed_datanode: str
    restarts: list[str]


class _Demo:
    """One run of the demo, for `run_demo`: start a cluster and the query, kill, restart, compare."""

    def __init__(
        self, options: DemoOptions, directory: Path, log: DemoInput, java: JavaRuntime, screen: DemoScreen
    ) -> None:
        self._batches = options.batches
        self._directory = directory
        self._log = log
        self._java = java
        self._screen = screen
        self._progress = directory / "progress.jsonl"
        self._result = directory / "result.json"

    def run(self) -> DemoReport:
        """Run the demo. If the query fails, show the end of its log and raise QueryFailed."""
        began = time.monotonic()
        self._show_input()
        with LocalCluster(self._directory / "cluster", _DATANODES, port=0) as cluster:
            self._screen.step("cluster", f"{_DATANODES} datanodes in 2 racks, 3 replicas, {cluster.webhdfs_uri}")
            with PeaceFileSystem(cluster.http_address) as coordinator:
                checkpoint = Checkpoint(coordinator, _CHECKPOINT)
                ordeal = self._run_query(cluster, coordinator, checkpoint)
                self._screen.step("repair", "waiting until every chunk has its replicas again")
                status = _await_repair(coordinator, ordeal.killed_datanode)
                return self._report(ordeal, checkpoint, status, time.monotonic() - began)

    def _show_input(self) -> None:
        log = self._log.measured
        self._screen.step("input", self._log.description)
        self._screen.step(
            "", f"{log.lines:,} lines, {log.failures:,} failed log-ins, from {log.first} to {log.last}"
        )
        self._screen.step(
            "",
            f"lines come {log.disorder_s:.0f} s late at most: the watermark is {watermark_delay_s(log)} s behind",
        )

    def _run_query(self, cluster: LocalCluster, coordinator: PeaceFileSystem, checkpoint: Checkpoint) -> _Ordeal:
        """Run the query from its first start to its result, with the kills in between."""
        step = self._screen.step
        plan, batches = self._prepare(cluster)
        step("query", f"{batches} batches, checkpoint and output on peacefs, Java {self._java.version}")
        with QuerySupervisor(
            start=lambda: self._start_query(plan),
            checkpoint=checkpoint,
            observe=lambda committed: self._screen.done(committed, batches),
            said=lambda what: step("", what),
        ) as query:
            try:
                killed = query.kill_in_batch(_KILL_FROM_BATCH, self._into_batch_s)
                step("kill", f"the query in batch {killed}: offsets/{killed} is there, commits/{killed} is not")
                victim, replicas = self._kill_datanode(cluster, coordinator)
                step("", f"datanode {victim}, which held {replicas:,} replicas")
                query.start_again(f"SIGKILL in batch {killed}")
                step("query", "started again from its checkpoint")
                query.run_to_end()
            except QueryFailed:
                self._screen.detail(query.last_words(_LOG_LINES_SHOWN))
                raise
            return _Ordeal(killed, victim, query.restarts)

    def _report(
        self, ordeal: _Ordeal, checkpoint: Checkpoint, status: dict[str, Any], seconds: float
    ) -> DemoReport:
        result = msgspec.json.decode(self._result.read_bytes(), type=QueryResult)
        held = checkpoint.size()
        progress = read_progress(self._progress)
        return DemoReport(
            input=self._log.description,
            lines=self._log.measured.lines,
            failed_logins=self._log.measured.failures,
            java=self._java.version,
            batches=(checkpoint.committed() or 0) + 1,
            killed_in_batch=ordeal.killed_in_batch,
            killed_datanode=ordeal.killed_datanode,
            restarts=ordeal.restarts,
            checkpoint_files=held.files,
            checkpoint_bytes=held.length,
            replicas_lost=status["replicas_lost_total"],
            replicas_repaired=status["repaired_total"],
            chunks_under_replicated=status["chunks"]["under_replicated"],
            log_writes_ms=spread([batch.log_writes_ms for batch in progress]),
            state_commit_ms=spread([batch.state_commit_ms for batch in progress]),
            rows=len(result.batch),
            differences=differences(result),
            seconds=round(seconds, 1),
        )

    def _prepare(self, cluster: LocalCluster) -> tuple[Path, int]:
        """Stage the input. Return the plan's file and the minimum number of batches."""
        measured = self._log.measured
        directory = self._directory / "input"
        parts = stage(read_lines(self._log.logs), measured, directory, self._batches, _WINDOW_S)
        plan = QueryPlan(
            coordinator=cluster.address.netloc,
            input_uri=f"file://{directory}",  # unescaped: Hadoop decodes no percent signs
            output_uri=cluster.webhdfs_uri + _OUTPUT,
            checkpoint_uri=cluster.webhdfs_uri + _CHECKPOINT,
            years=measured.years,
            window_s=_WINDOW_S,
            delay_s=watermark_delay_s(measured),
            progress=str(self._progress),
            result=str(self._result),
        )
        path = self._directory / "plan.json"
        path.write_bytes(msgspec.json.encode(plan))
        return path, len(parts)

    def _start_query(self, plan: Path) -> QueryProcess:
        variables = {
            **java_environment(self._java, self._directory / "java"),
            **scratch_environment(self._directory / "scratch"),
        }
        # Spark must find itself even if this machine's name does not resolve.
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"
        return QueryProcess(_QUERY_MODULE, plan, self._directory / "query.log", variables)

    def _into_batch_s(self) -> float:
        shortest_ms = min((batch.duration_ms for batch in read_progress(self._progress)), default=0)
        return _KILL_AFTER * shortest_ms / 1000

    def _kill_datanode(self, cluster: LocalCluster, coordinator: PeaceFileSystem) -> tuple[str, int]:
        """Kill the datanode with the most replicas. Return its id and how many it held."""
        fullest = max(coordinator.cluster_status()["datanodes"], key=lambda datanode: datanode["replicas"])
        victim = next(member for member in cluster.datanodes if member.node == fullest["node"])
        victim.kill()
        return victim.node, fullest["replicas"]


def _await_repair(coordinator: PeaceFileSystem, victim: str) -> dict[str, Any]:
    """Return the status once the victim is dead and all is repaired, or once nothing changes any more."""
    began_s = news_s = time.monotonic()
    seen: object = None
    while True:
        status = coordinator.cluster_status()
        states = {datanode["node"]: datanode["state"] for datanode in status["datanodes"]}
        chunks = status["chunks"]
        whole = not chunks["under_replicated"] and not chunks["being_repaired"]
        now_s = time.monotonic()
        news = (states, chunks, status["repaired_total"])
        if news != seen:
            seen, news_s = news, now_s
        is_over = now_s - news_s > demo_repair_timeout_s or now_s - began_s > demo_repair_longest_s
        if (states.get(victim) == "dead" and whole) or is_over:
            return status
        time.sleep(_REPAIR_POLL_S)
