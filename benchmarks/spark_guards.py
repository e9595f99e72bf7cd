"""Measure a micro-batch on peacefs without guards, with tokens, and over TLS, and on `file://`, alternating.

Hadoop's client takes its credentials and its truststore from settings of the whole JVM, so each place has a Spark
session in a process of its own; these take turns of a few batches. The query is that of `spark_batches`: a count
per key, state in RocksDB with change logs.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from pyspark.sql import SparkSession

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.spark_connector.demo.scratch import scratch_environment
from peacefs.spark_connector.java import find_java, java_environment
from peacefs.spark_connector.session import configure

from .guarded_clusters import NO_GUARD, GuardedCluster, guarded_clusters
from .report import show
from .stateful_query import StatefulQuery

_USER = "bench"
_CHECKPOINTS = "/user/bench/benchmark"
_STORE, _PARTITIONS = "RocksDB", 8
_LOCAL = "file://"
_STOP = None


@dataclass(frozen=True)
class _Place:
    """The settings of a session's process for checkpoints in one place."""

    directory: Path
    checkpoint: str
    http_address: str
    token: str
    truststore: str | None


def compare(*, quick: bool) -> None:
    batches, rounds = (2, 2) if quick else (6, 8)
    with tempfile.TemporaryDirectory() as name, guarded_clusters(Path(name) / "clusters", 4) as clusters:
        places = dict(_places(Path(name), clusters))
        with contextlib.ExitStack() as running:
            sessions = {label: running.enter_context(_session(place)) for label, place in places.items()}
            for session in sessions.values():
                _take_turn(session, batches)
            measured: dict[str, list[float]] = {label: [] for label in sessions}
            restarts: dict[str, list[float]] = {label: [] for label in sessions}
            for turn in range(rounds):
                for label in (list(sessions), list(sessions)[::-1])[turn % 2]:
                    restart_ms, durations_ms = _take_turn(sessions[label], batches)
                    restarts[label].append(restart_ms)
                    measured[label].append(statistics.median(durations_ms))
    rows: list[dict[str, object]] = []
    for label, durations_ms in measured.items():
        of_none = [mine / free for mine, free in zip(durations_ms, measured[NO_GUARD], strict=True)]
        rows.append(
            {
                "guard": label,
                "batch ms": statistics.median(durations_ms),
                "of none, median": statistics.median(of_none),
                "lowest": min(of_none),
                "highest": max(of_none),
                "start to commit ms": statistics.median(restarts[label]),
            }
        )
    title = f"{_STORE}, {_PARTITIONS} partitions: {rounds} turns of {batches} batches each, alternating"
    show("spark_guards", title, rows)


def _places(directory: Path, clusters: dict[str, GuardedCluster]) -> Iterator[tuple[str, _Place]]:
    free = clusters[NO_GUARD].cluster.http_address
    yield _LOCAL, _Place(directory / "local", f"file://{directory}/checkpoints", free, "", None)
    for guard, guarded in clusters.items():
        cluster, token = guarded.cluster, guarded.token(_USER)
        with PeaceFileSystem(cluster.http_address, _USER, token=token, ca_file=cluster.ca_file) as files:
            files.mkdirs(_CHECKPOINTS)
        truststore = str(cluster.truststore) if cluster.truststore else None
        checkpoint = f"{cluster.webhdfs_uri}{_CHECKPOINTS}"
        yield guard, _Place(directory / guard, checkpoint, cluster.http_address, token, truststore)


@contextlib.contextmanager
def _session(place: _Place) -> Iterator[Connection]:
    """Run a session's process. It takes turns until the other end of the pipe stops it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve_turns, args=(theirs, place))
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        with contextlib.suppress(OSError):
            ours.send(_STOP)
        process.join()
        ours.close()


def _take_turn(session: Connection, batches: int) -> tuple[float, list[float]]:
    """Return the time from the start to the first commit, and the durations of later batches, in ms."""
    session.send(batches)
    restart_ms, durations_ms = session.recv()
    return restart_ms, durations_ms


def _serve_turns(turns: Connection, place: _Place) -> None:
    place.directory.mkdir()
    os.environ.update(
        java_environment(find_java(), place.directory / "java"),
        **scratch_environment(place.directory / "scratch"),
        SPARK_LOCAL_IP="127.0.0.1",
        HADOOP_USER_NAME=_USER,
    )
    spark: SparkSession = (
        configure(SparkSession.builder, place.http_address, token=place.token or None, truststore=place.truststore)
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        query = StatefulQuery(spark, _STORE, _PARTITIONS, place.directory / "input", place.checkpoint)
        rng = random.Random(1)
        while (batches := turns.recv()) is not _STOP:
            for _ in range(batches + 1):
                query.add_input(rng)
            turn = query.start().turn()
            turns.send((turn.restart_ms, [batch["durationMs"]["triggerExecution"] for batch in turn.batches]))
    finally:
        spark.stop()
