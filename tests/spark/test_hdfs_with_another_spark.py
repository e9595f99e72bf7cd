"""A stateful query of another Spark on `hdfs://` is exact while driver, datanode and coordinator are killed.

python -m venv spark35 && spark35/bin/pip install pyspark==3.5.9 setuptools
PEACEFS_OTHER_SPARK_PYTHON=spark35/bin/python python -m pytest tests/spark/test_hdfs_with_another_spark.py
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.spark_connector.checkpoints.batches import Checkpoint
from peacefs.spark_connector.java import find_java, java_environment

_SCRIPT = Path(__file__).parent.parent / "support" / "distinct_query.py"
_OTHER = "PEACEFS_OTHER_SPARK_PYTHON"
_PARTS, _LINES = 16, 50
_COMMITS_BETWEEN = 3
_FINISH_TIMEOUT_S = 300.0

pytestmark = [
    pytest.mark.spark,
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(_OTHER not in os.environ, reason=f"{_OTHER} names no Python with another Spark"),
]


@contextmanager
def _driver(uri: str, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the query in a process group of its own, which is killed at the end of the block."""
    python = os.environ[_OTHER]
    variables = {
        **java_environment(find_java(), directory / "java"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": python,
    }
    with (
        (directory / "driver.log").open("ab") as log,
        subprocess.Popen(
            [python, "-P", str(_SCRIPT), uri, str(directory / "result")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            # A query that has ended may have left no process.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _line(number: int) -> str:
    """Return a line that comes again in later parts."""
    return f"line {number * number % (_PARTS * _LINES // 2)}"


def test_stateful_query_of_another_spark_is_exact_while_everything_is_killed(tmp_path: Path) -> None:
    lines = [_line(number) for number in range(_PARTS * _LINES)]
    with (
        LocalCluster(tmp_path / "cluster", datanodes=4, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        for part in range(_PARTS):
            text = "\n".join(lines[part * _LINES : (part + 1) * _LINES])
            files.write(f"/source/{part:02}.txt", text.encode())
        checkpoint = Checkpoint(files, "/checkpoint")
        for victim in ("driver", "datanode", "coordinator"):
            wanted = (checkpoint.committed() or 0) + _COMMITS_BETWEEN
            with _driver(cluster.hdfs_uri, tmp_path) as driver:
                wait_until(
                    lambda wanted=wanted, driver=driver: (
                        driver.poll() is not None or (checkpoint.committed() or 0) >= wanted
                    ),
                    "batches are committed",
                )
                assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-4000:]
                if victim != "driver":
                    member = cluster.coordinator if victim == "coordinator" else cluster.datanodes[0]
                    member.kill()
                    cluster.restart(member)
                    wait_until(
                        lambda wanted=wanted, driver=driver: (
                            driver.poll() is not None or (checkpoint.committed() or 0) > wanted
                        ),
                        f"batches are committed after a kill of the {victim}",
                    )
                    assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-4000:]
        with _driver(cluster.hdfs_uri, tmp_path) as driver:
            assert driver.wait(_FINISH_TIMEOUT_S) == 0, (tmp_path / "driver.log").read_text()[-4000:]
        assert checkpoint.committed() == _PARTS - 1
        verdict = json.loads((tmp_path / "result").read_text())
    print(f"Spark {verdict['version']}")
    assert sorted(verdict["rows"]) == sorted(set(lines))
