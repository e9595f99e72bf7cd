"""Spark writes its event log on `hdfs://`: each event can be read at once, and the history server reads all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from importlib.resources import files as package_files
from pathlib import Path

import pytest
from support.etcd import free_ports
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.spark_connector.java import find_java

pytestmark = [
    pytest.mark.spark,
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.long("an application and a history server of Spark"),
]
_APPLICATION = """
import sys
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[2]").appName("of the log").config("spark.ui.enabled", "false")
    .config("spark.eventLog.compress", "false")
    .config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", sys.argv[1]).getOrCreate()
)
for line in sys.stdin:
    print(spark.range(int(line)).selectExpr("sum(id)").collect()[0][0], flush=True)
spark.stop()
"""
_HISTORY = "org.apache.spark.deploy.history.HistoryServer"
_OPENED = [
    f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in ("java.lang", "java.nio", "java.util", "sun.nio.ch")
]


def _events(files: PeaceFileSystem) -> list[str]:
    """Return the names of all events that anybody can read now."""
    logs = [
        f"/events/{run.name}/{log.name}"
        for run in files.list("/events")
        for log in files.list(f"/events/{run.name}")
        if log.name.startswith("events_")
    ]
    lines = b"".join(files.read(log) for log in logs).splitlines()
    return [json.loads(line)["Event"] for line in lines]


def _applications(port: int) -> list[dict[str, object]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/applications", timeout=10) as answer:
            found: list[dict[str, object]] = json.load(answer)
    except OSError:
        return []
    return found


def test_event_log_is_read_while_it_is_written_and_by_the_history_server(tmp_path: Path) -> None:
    with (
        LocalCluster(tmp_path / "cluster", datanodes=3, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        files.mkdirs("/events")
        where = f"{cluster.hdfs_uri}/events"
        command = [sys.executable, "-c", _APPLICATION, where]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as application:
            assert application.stdin is not None
            assert application.stdout is not None
            for jobs in (1, 2, 3):
                application.stdin.write("1000\n")
                application.stdin.flush()
                assert application.stdout.readline() == f"{sum(range(1000))}\n"
                wait_until(
                    lambda jobs=jobs: _events(files).count("SparkListenerJobEnd") >= jobs,
                    "the end of the job is told",
                )
            application.stdin.close()
            assert application.wait(120) == 0
        assert _events(files)[-1] == "SparkListenerApplicationEnd"
        (port,) = free_ports(1)
        settings = [f"-Dspark.history.fs.logDirectory={where}", f"-Dspark.history.ui.port={port}"]
        jars = f"{package_files('pyspark') / 'jars'}/*"
        history = subprocess.Popen(
            [str(find_java().executable), *_OPENED, *settings, "-cp", jars, _HISTORY],
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "127.0.0.1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until(lambda: _applications(port) != [], "the history server tells of the application")
            (told,) = _applications(port)
        finally:
            history.kill()
            history.wait()
    assert told["name"] == "of the log"
    assert told["attempts"][0]["completed"] is True  # type: ignore[index]
