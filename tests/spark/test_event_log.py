"""Spark's event log on peacefs: a history server reads it while it grows, and it survives its driver."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.java_options import class_path
from support.waiting import PATIENCE_S, wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.spark_connector.java import find_java, java_environment

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

#: A driver with one context per kind of log: the first ends after three jobs, the second continues. The log needs
#: only Spark's core; loading its SQL, too, would take most of the time.
JOB = """
import sys, time
from pyspark import SparkConf, SparkContext

logs, first, second = sys.argv[1:]
for rolling, ends in ((first, True), (second, False)):
    settings = {
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": logs,
        "spark.eventLog.rolling.enabled": rolling,
    }
    context = SparkContext("local[2]", "jobs", conf=SparkConf().setAll(settings.items()))
    print("application", context.applicationId, flush=True)
    number = 0
    while not ends or number < 3:
        assert context._jsc.sc().range(0, 1000, 1, 2).count() == 1000
        number += 1
        print("job", number, flush=True)
        time.sleep(0.2)
    context.stop()
    print("stopped", rolling, flush=True)
"""


_OTHER = {"true": "false", "false": "true"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), datanodes=2, port=0) as cluster:
        with PeaceFileSystem(cluster.http_address) as files:
            files.mkdirs("/logs")
        yield cluster


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    java = java_environment(find_java(), tmp_path_factory.mktemp("java"))
    return dict(os.environ) | java | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}


class Started:
    """A process whose output goes to a file."""

    def __init__(self, command: list[str], environment: dict[str, str], output: Path) -> None:
        self._output = output
        with output.open("wb") as sink:
            self.process = subprocess.Popen(
                command, env=environment, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
            )

    def said(self, pattern: str) -> str:
        """Return the pattern's first group when the output has it."""

        def found() -> re.Match[str] | None:
            match = re.search(pattern, self._output.read_text())
            assert match is not None or self.process.poll() is None, self._output.read_text()[-3000:]
            return match

        wait_until(found, f"{pattern} was not said: {self._output.read_text()[-3000:]}")
        match = found()
        assert match is not None
        return match.group(1)

    def last_said(self, pattern: str) -> str:
        """Return the first group of the pattern's last match."""
        return re.findall(pattern, self._output.read_text())[-1]

    def kill(self) -> None:
        """Kill the process and its JVM with SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def history(
    cluster: LocalCluster, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Yield the REST address of Spark's history server."""
    pyspark = pytest.importorskip("pyspark")
    directory, jars = tmp_path_factory.mktemp("history"), Path(pyspark.__file__).parent / "jars"
    settings = {
        "spark.history.fs.logDirectory": f"{cluster.webhdfs_uri}/logs",
        "spark.history.fs.update.interval": "1s",
        "spark.history.ui.port": "0",
        "spark.history.store.path": "",
    }
    command = [
        str(Path(environment["JAVA_HOME"]) / "bin" / "java"),
        *(f"-D{key}={value}" for key, value in settings.items() if value),
        *shlex.split(environment.get("SPARK_SUBMIT_OPTS", "")),
        "-cp",
        # In the order of Spark's launcher, for which the class archive was made.
        class_path(str(next(jars.glob("slf4j-api-*.jar"))), f"{jars}/*"),
        "org.apache.spark.deploy.history.HistoryServer",
    ]
    server = Started(command, environment, directory / "output")
    try:
        yield server.said(r"started at (http://[^\s]+)") + "/api/v1/applications"
    finally:
        server.kill()


def asked(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return json.load(answer)


def jobs(history: str, application: str) -> int:
    """Return the number of an application's jobs that the history server knows."""
    with contextlib.suppress(urllib.error.HTTPError):
        return len(asked(f"{history}/{application}/jobs"))
    return 0


def is_completed(history: str, application: str) -> bool:
    listed = [entry for entry in asked(history) if entry["id"] == application]
    return bool(listed) and all(attempt["completed"] for attempt in listed[0]["attempts"])


@dataclass
class Driver:
    """A driver in its second session, with both applications: the one that has ended, and the running one."""

    started: Started
    ended: str
    application: str


@pytest.fixture(scope="module")
def drivers(
    cluster: LocalCluster, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Driver]]:
    """Yield for each kind of log the driver that writes it second. The first user starts the driver."""
    made: dict[str, Started] = {}

    def driver(rolling: str) -> Driver:
        if rolling not in made:
            kinds = (_OTHER[rolling], rolling)
            command = [sys.executable, "-P", "-c", JOB, f"{cluster.webhdfs_uri}/logs", *kinds]
            made[rolling] = Started(command, environment, tmp_path_factory.mktemp("driver") / "output")
        started = made[rolling]
        started.said(r"stopped (\w+)")
        return Driver(
            started, started.said(r"application (\S+)"), started.said(r"stopped \w+\n(?s:.*)application (\S+)")
        )

    yield driver
    for started in made.values():
        started.kill()


@pytest.mark.parametrize(
    "rolling", [pytest.param("true", marks=pytest.mark.long("two minutes")), "false"], ids=["rolling", "single"]
)
@pytest.mark.timeout(400)
def test_event_log_is_read_while_it_grows_and_after_its_driver_was_killed(
    cluster: LocalCluster, drivers: Callable[[str], Driver], history: str, rolling: str
) -> None:
    driver = drivers(rolling)
    try:
        application = driver.application
        wait_until(lambda: jobs(history, application) >= 2, "the log cannot be read while it grows")
        before = jobs(history, application)
        wait_until(lambda: jobs(history, application) > before, "the log does not grow")
        assert not is_completed(history, application)
    finally:
        driver.started.kill()
    written = int(driver.started.last_said(r"job (\d+)"))
    # Spark's event queue may not have handled the last job.
    wait_until(lambda: jobs(history, application) >= written - 1, "the log has not survived its driver")
    with PeaceFileSystem(cluster.http_address) as files:
        (log,) = (entry for entry in files.list("/logs") if application in entry.name)
        names = [log.name] if rolling == "false" else [entry.name for entry in files.list(f"/logs/{log.name}")]
        assert any(name.endswith(".inprogress") for name in names), names


@pytest.mark.parametrize(
    "rolling", [pytest.param("true", marks=pytest.mark.long("two minutes")), "false"], ids=["rolling", "single"]
)
@pytest.mark.timeout(400)
def test_event_log_of_a_driver_that_ends_is_complete(
    cluster: LocalCluster, history: str, drivers: Callable[[str], Driver], rolling: str
) -> None:
    application = drivers(_OTHER[rolling]).ended
    wait_until(lambda: is_completed(history, application), "the log does not end")
    assert jobs(history, application) == 3
    with PeaceFileSystem(cluster.http_address) as files:
        [log] = [entry for entry in files.list("/logs") if application in entry.name]
    assert log.is_directory == (rolling == "true")
