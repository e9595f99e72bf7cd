"""A dataflow on Spark's executors, one of which is killed in the middle.

It is a program, because a process can have only one Spark context: `python -m support.executors_ordeal DIRECTORY`.
Each line of its standard input names a technique. It runs the dataflow with that technique on the same executors,
and prints a line of JSON: the output rows, and the sessions in which the killed unit ran before and after the
kill. For a peer ring the dataflow counts words, and the sessions are the ring's nodes. A line may instead name a
Python file, which is run with this Spark session; the answer is its error.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.edge_run import EdgeRun
from peacefs.dataflow.hosts.ring_run import RingRun
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.cec import CEC
from peacefs.dataflow.techniques.flux import Flux
from peacefs.dataflow.techniques.passive_standby import PassiveStandby
from peacefs.dataflow.techniques.peer_ring import PeerRing
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.dataflow.techniques.upstream_backup import UpstreamBackup
from peacefs.spark_connector.executors_host import SparkExecutors

from .dataflows import SCHEMA, input_rows
from .prepared_workers import PreparedPython, prepared_python
from .waiting import wait_until

_PATIENCE_S = 150.0


def network(places: Path) -> Network:
    """Build windows in a second unit, which records its process."""

    def note_place(rows: pa.RecordBatch) -> pa.RecordBatch:
        (places / str(os.getpid())).touch()
        return rows

    query = Query("first")
    stream = query.source("in", SCHEMA, time="at").filter(F.col("value") >= 0)
    windows = stream.unit("second").map(note_place).key_by("key").window("4s", every="2s")
    windows.aggregate(F.count(), F.sum("value")).sink("out")
    return query.network()


def executor_of(worker: int, python: PreparedPython) -> int:
    """Return the process of the JVM that has started the parent of a Python worker."""

    def parent(pid: int) -> int:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    daemon = parent(worker)
    executor = parent(python.stubs.get(daemon, daemon))
    assert "CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_text()
    return executor


def spark_home(directory: Path) -> Path:
    """Return a directory of links to Spark's package, so that workers write their files elsewhere."""
    home = directory / "spark"
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (home / part.name).symlink_to(part)
    return home


def has_ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


TECHNIQUES: dict[str, Callable[[], Technique]] = {
    "sguard": lambda: SGuard(interval_s=0.1),
    "upstream-backup": lambda: UpstreamBackup(precise=True),
    "active-standby": ActiveStandby,
    "passive-standby": PassiveStandby,
    "cec": CEC,
    "flux": Flux,
}


def is_prepared(run: EdgeRun, technique: Technique, checkpoints: DirectoryCheckpoints) -> bool:
    """Return whether the second unit has what its technique recovers it from; upstream backup stores nothing."""
    if technique.replicas.paired:
        return run.survives_loss_of("second")
    if technique.windows is not None:
        return any(name.startswith("second ") for name in checkpoints.segments().streams())
    return not technique.takes_checkpoints or run.checkpoint_of("second") is not None


def play(spark: SparkSession, python: PreparedPython, technique: Technique, directory: Path) -> dict[str, Any]:
    places = directory / "places"
    places.mkdir(parents=True)
    checkpoints = DirectoryCheckpoints(directory / "checkpoints")
    batches = input_rows(1, batches=8, size=4)
    started: Queue[EdgeRun] = Queue()
    rows: list[list[str]] = []
    sessions: list[str] = []

    def feed() -> Iterator[pa.RecordBatch]:
        yield from batches[:4]
        run = started.get()
        wait_until(lambda: run.session_of("second"), "a place of the second unit", _PATIENCE_S)
        session = run.session_of("second")
        assert session is not None
        # An active standby processes rows as well: the session's first part is the process of the primary.
        worker = int(session.partition("-")[0])
        wait_until((places / str(worker)).exists, "the second unit's first rows", _PATIENCE_S)
        wait_until(lambda: is_prepared(run, technique, checkpoints), "what it recovers from", _PATIENCE_S)
        os.kill(executor_of(worker, python), signal.SIGKILL)
        # Its Python worker ends a moment later.
        wait_until(lambda: has_ended(worker), "the end of the worker of the executor that was killed", _PATIENCE_S)
        wait_until(lambda: run.session_of("second") not in (session, None), "another place", _PATIENCE_S)
        sessions.extend(filter(None, (session, run.session_of("second"))))
        yield from batches[4:]

    def take(batch: pa.RecordBatch) -> None:
        rows.extend([*map(str, row)] for row in zip(*(c.to_pylist() for c in batch.columns), strict=True))

    host = SparkExecutors(spark, 2, checkpoints, node_timeout_s=5.0)
    with host.start(network(places), technique, {"in": feed()}, {"out": take}) as run:
        assert isinstance(run, EdgeRun)
        started.put(run)
        run.wait(_PATIENCE_S)
    return {"rows": rows, "sessions": sessions}


def ring_network() -> Network:
    """Count rows by key, and output the rows unchanged."""

    def count(rows: pa.RecordBatch, state: Any) -> pa.RecordBatch:
        state.add_at(rows.column("key"), 1)
        return rows

    query = Query("ring")
    rows = query.source("in", SCHEMA, time="at").filter(F.col("value") >= 0)
    rows.process(count, state={"key": "string", "count": "int64"}, key="key").sink("out")
    return query.network()


def play_ring(spark: SparkSession, python: PreparedPython, directory: Path) -> dict[str, Any]:
    """Run a ring of two neighbouring nodes, and kill one. Spark starts another."""
    batches = input_rows(1, batches=8, size=4)
    started: Queue[RingRun] = Queue()
    rows: list[list[str]] = []
    rings: list[list[str]] = []

    def feed() -> Iterator[pa.RecordBatch]:
        yield from batches[:4]
        run = started.get()
        wait_until(lambda: len(rows) >= 4, "rows of the ring", _PATIENCE_S)
        rings.append(run.ring())
        worker = run.process_of("node-2")
        assert worker is not None
        os.kill(executor_of(worker, python), signal.SIGKILL)
        wait_until(lambda: "node-2" not in run.ring(), "a ring without the node", _PATIENCE_S)
        yield from batches[4:6]
        wait_until(lambda: len(run.ring()) == 2, "another node in its place", _PATIENCE_S)
        rings.append(run.ring())
        yield from batches[6:]

    def take(batch: pa.RecordBatch) -> None:
        rows.extend([*map(str, row)] for row in zip(*(c.to_pylist() for c in batch.columns), strict=True))

    host = SparkExecutors(spark, 2, DirectoryCheckpoints(directory))
    # A long timeout for tasks on a busy machine. A killed task is noticed at once nevertheless.
    technique = PeerRing(r=1, checkpoint_s=0.3, silence_s=60.0)
    with host.start(ring_network(), technique, {"in": feed()}, {"out": take}) as run:
        assert isinstance(run, RingRun)
        started.put(run)
        run.wait(_PATIENCE_S)
    return {"rows": sorted(rows), "sessions": rings}


def session() -> SparkSession:
    return (
        SparkSession.builder.master("local-cluster[2,1,512]")
        .config("spark.executor.memory", "512m")
        .config("spark.task.maxFailures", "1000")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def failure_of(script: Path) -> str | None:
    """Run a program to its end; return its traceback, or None."""
    try:
        runpy.run_path(str(script), run_name="__main__")
    except Exception:
        return traceback.format_exc()
    return None


def answer(words: str, python: PreparedPython, directory: Path) -> dict[str, Any]:
    if words.endswith(".py"):
        return {"failure": failure_of(Path(words))}
    if words == "peer-ring":
        return play_ring(session(), python, directory / words)
    return play(session(), python, TECHNIQUES[words](), directory / words)


def main(directory: Path) -> None:
    os.environ["SPARK_HOME"] = str(spark_home(directory))
    with prepared_python(directory) as python:
        os.environ["PYSPARK_PYTHON"] = str(python.path)
        for line in sys.stdin:
            print(json.dumps(answer(line.strip(), python, directory)), flush=True)
        if (left := SparkSession.getActiveSession()) is not None:
            left.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
