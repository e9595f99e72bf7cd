"""The tutorial, step by step: its query is killed and continues, with the counts that the page promises."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.java_options import submit_arguments
from support.long_runs import often
from support.pages import GUIDE_ADDRESS, ROOT, Page
from support.waiting import wait_until

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.spark_connector.java import find_java, java_environment

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

_PAGE = Page(ROOT / "docs" / "tutorial.md")
_FEW = ("--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2")
#: The page has two outputs: after the driver's death, and after a datanode's. Here both died before one output.
_RESTARTS = often(1, 2)
_ROW = re.compile(r"^\|\s*(\w+)\|\s*(\d+)\|$", re.MULTILINE)


def inputs() -> list[tuple[str, str]]:
    """Return the input lines that the page shows, and their files."""
    return re.findall(r'^echo "([^"]*)" > input/(\S+)$', "\n".join(_PAGE.blocks("")), re.MULTILINE)


@contextmanager
def running(
    script: Path, directory: Path, log: Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        query = subprocess.Popen(
            [sys.executable, "-P", str(script), str(directory)],
            **{"env": environment, "stdout": output, "stderr": output, "start_new_session": True},
        )
        try:
            yield query
        finally:
            os.killpg(query.pid, signal.SIGKILL)
            query.wait()


def counted(log: Path) -> dict[str, int]:
    """Return the counts of the last printed batch."""
    last = log.read_text(errors="replace").rpartition("Batch:")[2]
    return {word: int(count) for word, count in _ROW.findall(last)}


def ends_with(log: Path) -> None:
    wait_until(lambda: counted(log).get("nobler") == 1, "it goes on without a datanode")
    assert (counted(log)["to"], counted(log)["be"]) == (4, 4)


@pytest.mark.timeout(300)
def test_tutorial_gives_the_counts_that_it_promises(tmp_path: Path) -> None:
    lines = inputs()
    assert len(lines) == 3
    directory = tmp_path / "input"
    directory.mkdir()
    with LocalCluster(tmp_path / "cluster", datanodes=4, port=0) as cluster:
        script = tmp_path / "count_words.py"
        address = cluster.http_address.removeprefix("http://")
        script.write_text("\n".join(_PAGE.blocks("python")).replace(GUIDE_ADDRESS, address))
        environment = {
            **os.environ,
            **java_environment(find_java(), tmp_path),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": submit_arguments(*_FEW),
        }

        def write(number: int) -> None:
            text, name = lines[number]
            staged = tmp_path / name
            staged.write_text(text + "\n")
            staged.rename(directory / name)

        write(0)
        first, second, third = (tmp_path / f"{name}.log" for name in ("first", "second", "third"))
        with running(script, directory, first, environment) as query:
            wait_until(
                lambda: counted(first) == {"to": 2, "be": 2, "or": 1, "not": 1}, "the first batch is printed"
            )
            os.killpg(query.pid, signal.SIGKILL)
            query.wait()
        if _RESTARTS == 1:
            cluster.datanodes[0].kill()
        write(1)
        with running(script, directory, second, environment):
            wait_until(lambda: counted(second).get("question") == 1, "it goes on after its death")
            assert (counted(second)["to"], counted(second)["be"]) == (3, 3)
            if _RESTARTS == 1:
                write(2)
                ends_with(second)
        if _RESTARTS == 2:
            cluster.datanodes[0].kill()
            write(2)
            with running(script, directory, third, environment):
                ends_with(third)
