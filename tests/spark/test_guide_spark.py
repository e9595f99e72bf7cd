"""The Python of README and docs/spark.md starts a query on a cluster, with a run and reports."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from support.java_options import submit_arguments
from support.pages import GUIDE_ADDRESS, ROOT, Page

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.spark_connector.java import find_java, java_environment

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(600)]

_GUIDES = ("README.md", "docs/spark.md")
#: README's query runs for ever; here it ends after one batch.
_END = """
import time
deadline = time.monotonic() + 180
(query,) = spark.streams.active
while query.lastProgress is None:
    assert query.exception() is None and time.monotonic() < deadline
    time.sleep(0.1)
query.stop()
spark.stop()
print("ended", __name__)
"""
#: Each guide has its own session, as for its user; the second one starts in a JVM with loaded classes.
_ALL = """
import runpy, sys, traceback
from pyspark.sql import SparkSession
for script in sys.argv[1:]:
    try:
        runpy.run_path(script, run_name=script)
    except Exception:
        traceback.print_exc()
        if session := SparkSession.getActiveSession():
            session.stop()
"""


class Ran(NamedTuple):
    """A guide's cluster, and the output of all guides."""

    cluster: LocalCluster
    script: Path
    done: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def guides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Ran]]:
    """Yield the results of running each guide's code on a cluster of its own, one after the other."""
    directory = tmp_path_factory.mktemp("guides")
    environment = {
        **os.environ,
        **java_environment(find_java(), directory),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": submit_arguments("--master=local[2]", "--conf", "spark.ui.enabled=false"),
    }
    with ExitStack() as running:
        clusters, scripts = {}, {}
        for number, name in enumerate(_GUIDES):
            cluster = running.enter_context(LocalCluster(directory / f"cluster-{number}", datanodes=3, port=0))
            blocks = [block for block in Page(ROOT / name).blocks("python") if "spark" in block]
            address = cluster.http_address.removeprefix("http://")
            scripts[name] = directory / f"guide-{number}.py"
            scripts[name].write_text("\n".join([*blocks, _END]).replace(GUIDE_ADDRESS, address))
            clusters[name] = cluster
        done = subprocess.run(
            [sys.executable, "-c", _ALL, *map(str, scripts.values())],
            capture_output=True,
            text=True,
            timeout=500,
            env=environment,
        )
        yield {name: Ran(clusters[name], scripts[name], done) for name in _GUIDES}


@pytest.mark.parametrize("name", _GUIDES)
def test_the_query_of_a_guide_commits_a_batch(name: str, guides: dict[str, Ran]) -> None:
    cluster, script, done = guides[name]
    assert f"ended {script}" in done.stdout.splitlines(), done.stderr[-3000:]
    assert done.returncode == 0, done.stderr[-3000:]
    with PeaceFileSystem(cluster.http_address) as files:
        assert files.exists("/checkpoints/alerts/commits/0")
        assert files.exists("/tables/alerts/_spark_metadata/0")
