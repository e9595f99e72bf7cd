"""HDFS's own benchmark of names, NNThroughputBenchmark, against peacefs and against a NameNode, in turn.

It runs unmodified, in a JVM of its own for each operation, over `hdfs://`. Needs Maven and a JDK.
"""

from __future__ import annotations

import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from peacefs.client.local_cluster.cluster import LocalCluster

from .peers.hdfs import NoHadoop, hadoop_classpath, running_hdfs
from .report import show

_BENCHMARK = "org.apache.hadoop.hdfs.server.namenode.NNThroughputBenchmark"
_OPERATIONS = {
    "create": "-files",
    "mkdirs": "-dirs",
    "open": "-files",
    "fileStatus": "-files",
    "rename": "-files",
    "delete": "-files",
}
_RATE = re.compile(r"Ops per sec: ([0-9.]+)")
_THREADS = 16
_RUN_TIMEOUT_S = 600.0
_START_TIMEOUT_S = 120.0
_LOGGING = """
log4j.rootLogger=ERROR, out
log4j.logger.org.apache.hadoop.hdfs.server.namenode.NNThroughputBenchmark=INFO
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%m%n
"""


def main(*, quick: bool = False) -> None:
    names, rounds = (200, 1) if quick else (10_000, 3)
    with tempfile.TemporaryDirectory() as made:
        scratch = Path(made)
        try:
            classpath = hadoop_classpath(scratch / "java")
        except NoHadoop as missing:
            sys.stdout.write(f"hdfs_names is skipped: {missing}\n")
            return
        (scratch / "logging").mkdir()
        (scratch / "logging" / "log4j.properties").write_text(_LOGGING)
        classpath = f"{scratch / 'logging'}:{classpath}"
        with (
            LocalCluster(scratch / "peacefs", datanodes=1, port=0) as cluster,
            running_hdfs(classpath, scratch / "hdfs", 1) as hdfs,
        ):
            _wait_for(hdfs.uri)
            rows = [
                _row(operation, classpath, cluster.hdfs_uri, hdfs.uri, names, rounds) for operation in _OPERATIONS
            ]
    show("hdfs_names", f"NNThroughputBenchmark, {_THREADS} threads, {names} names, median of {rounds}", rows)


def _wait_for(uri: str) -> None:
    """Wait until a NameNode that is starting takes connections. Raises RuntimeError."""
    host, _, port = uri.removeprefix("hdfs://").partition(":")
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        try:
            socket.create_connection((host, int(port)), timeout=1.0).close()
            return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"the NameNode at {uri} has not started in {_START_TIMEOUT_S:g} s")


def _row(operation: str, classpath: str, ours: str, theirs: str, names: int, rounds: int) -> dict[str, object]:
    rates: dict[str, list[float]] = {ours: [], theirs: []}
    for _ in range(rounds):
        for uri, found in rates.items():
            found.append(_rate(operation, classpath, uri, names))
    here, there = (statistics.median(found) for found in rates.values())
    return {"operation": operation, "peacefs, ops/s": here, "HDFS, ops/s": there, "ratio": here / there}


def _rate(operation: str, classpath: str, uri: str, names: int) -> float:
    options = ["-op", operation, "-threads", str(_THREADS), _OPERATIONS[operation], str(names)]
    command = ["java", "-Djava.net.preferIPv4Stack=true", "-cp", classpath, _BENCHMARK, "-fs", uri, *options]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_RUN_TIMEOUT_S, check=False)
    found = _RATE.findall(ran.stdout + ran.stderr)
    if not found:
        raise RuntimeError(f"{operation} at {uri} has failed: {(ran.stdout + ran.stderr)[-500:]}")
    return float(found[-1])
