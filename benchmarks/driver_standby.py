"""Measure how long a supervised query stands still after its driver is killed, with and without a standby.

A Spark query counts rows by key every half second, with RocksDB and its checkpoint on peacefs (r = 3), supervised
by two agents. Its driver, Python and JVM, is killed with SIGKILL. The time is from the kill to the next committed
batch. Rounds with and without a standby alternate. Before each kill the query has committed some batches and the
standby has waited for a while, as in practice. No node dies here: in both cases a silent agent would be noticed
only after 15 s.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peacefs.client.control.supervised_queries import SupervisedQueries
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.client.local_cluster.member_process import LocalMember
from peacefs.spark_connector.java import find_java, java_environment
from peacefs.spark_connector.supervision.registration import supervise

from .report import show

_SCRIPT = Path(__file__).with_name("standby_query.py")
_BATCHES_BEFORE = 6
#: The time for a standby to warm up. A query without a standby waits as long.
_SETTLE_S = 15.0
_PATIENCE_S = 180.0
_POLL_S = 0.01


def main(*, quick: bool = False) -> None:
    rounds = 1 if quick else 7
    still: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o711)
        with LocalCluster(directory / "cluster", datanodes=3, port=0) as cluster, _agents(cluster, directory):
            for number in range(rounds):
                for has_standby in (False, True) if number % 2 == 0 else (True, False):
                    spent_s = _one_round(cluster, directory, f"counts-{number}-{has_standby}", has_standby)
                    still[has_standby].append(spent_s)
                    kind = "given to its standby" if has_standby else "started again"
                    print(f"  {kind}: {spent_s:.2f} s to the next committed batch", flush=True)
    cold_s = statistics.median(still[False])
    show("driver_standby", "kill -9 of a query's driver until its next batch is committed", _rows(still, cold_s))


def _rows(still: dict[bool, list[float]], cold_s: float) -> list[dict[str, Any]]:
    return [
        {
            "the query is": "given to its standby" if has_standby else "started again",
            "kills": len(times),
            "median s": statistics.median(times),
            "worst s": max(times),
            "times sooner": cold_s / statistics.median(times),
        }
        for has_standby, times in still.items()
    ]


def _one_round(cluster: LocalCluster, directory: Path, name: str, has_standby: bool) -> float:
    checkpoint = f"/checkpoints/{name}"
    with SupervisedQueries(cluster.http_address) as queries, PeaceFileSystem(cluster.http_address) as files:

        def committed() -> int:
            """Return the last committed batch, -1 before the first."""
            if not files.exists(f"{checkpoint}/commits"):
                return -1
            names = (each.path.rpartition("/")[2] for each in files.list(f"{checkpoint}/commits"))
            return max((int(name) for name in names if name.isdecimal()), default=-1)

        supervise(["counts"], coordinator=cluster.http_address, checkpoint=checkpoint, standby=has_standby)
        try:
            _wait(lambda: committed() >= _BATCHES_BEFORE, "the query makes progress")
            if has_standby:
                _wait(lambda: queries.status(name).standby == "ready", "its standby is ready")
            time.sleep(_SETTLE_S)
            run = queries.status(name).run
            victims = _driver(directory, name, run)
            before = committed()
            killed_s = time.monotonic()
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
            # A batch that was running may still have been committed by then.
            _wait(lambda: queries.status(name).run != run, "another run is begun")
            before = max(before, committed())
            _wait(lambda: committed() > before, "a batch is committed")
            return time.monotonic() - killed_s
        finally:
            queries.stop(name)
            _wait(lambda: queries.status(name).phase == "stopped", "the query is stopped")


def _driver(directory: Path, query: str, run: str) -> list[int]:
    """Return the processes of a run's driver, Python and Java, as the driver reports them."""
    for log in directory.glob(f"agent-*/logs/{query}.*.log"):
        for line in log.read_text(errors="replace").splitlines():
            words = line.split()
            if words[:1] == ["driver"] and words[3] == run:
                return [int(words[1]), int(words[2])]
    raise AssertionError(f"no driver has said that it is run {run}")


@contextmanager
def _agents(cluster: LocalCluster, directory: Path) -> Iterator[None]:
    reading, writing = os.pipe()
    started = [_agent(cluster, directory / f"agent-{name}", reading) for name in ("north", "south")]
    try:
        yield
    finally:
        for member in started:
            member.terminate()
        for member in started:
            member.await_end(time.monotonic() + _PATIENCE_S)
        os.close(reading)
        os.close(writing)


def _agent(cluster: LocalCluster, home: Path, lifeline: int) -> LocalMember:
    home.mkdir()
    home.chmod(0o711)
    variables = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        **java_environment(find_java(), home.parent / "java"),
    }
    environment = ", ".join(f"{name} = '{value}'" for name, value in variables.items())
    accounts = '[accounts]\n"root" = "root"' if os.geteuid() == 0 else ""
    (home / "commands.toml").write_text(
        f"""
        [commands.counts]
        program = "{sys.executable}"
        arguments = ["-P", "{_SCRIPT}", "{{checkpoint}}"]
        environment = {{ {environment} }}
        {accounts}
        """
    )
    coordinator = cluster.coordinator.readiness
    arguments = [
        "agent",
        f"--dir={home}",
        f"--commands={home / 'commands.toml'}",
        f"--name={home.name}",
        "--host=127.0.0.1",
        f"--coordinator={coordinator.node_host}:{coordinator.node_port}",
        f"--secret-file={cluster.directory / 'coordinator' / 'cluster.secret'}",
    ]
    log = home / "agent.log"
    log.touch()
    member = LocalMember(home.name, lambda _before: arguments, lambda: log, lifeline, [])
    member.start()
    member.await_ready()
    return member


def _wait(condition: Callable[[], bool], what: str) -> None:
    until_s = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > until_s:
            raise AssertionError(f"not within {_PATIENCE_S:g} s: {what}")
        time.sleep(_POLL_S)
