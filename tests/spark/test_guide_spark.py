"""The Python of README and of docs/spark.md starts a query on a cluster, as a run, and reports of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.pages import GUIDE_ADDRESS, ROOT, Page

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.spark_connector.java import find_java, java_environment

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

#: A query of README goes on for ever; here it ends after a batch.
_END = """
import time
deadline = time.monotonic() + 180
(query,) = spark.streams.active
while query.lastProgress is None:
    assert query.exception() is None and time.monotonic() < deadline
    time.sleep(0.1)
query.stop()
spark.stop()
"""


@pytest.mark.parametrize("name", ["README.md", "docs/spark.md"])
def test_the_query_of_a_guide_commits_a_batch(name: str, tmp_path: Path) -> None:
    blocks = [block for block in Page(ROOT / name).blocks("python") if "spark" in block]
    with LocalCluster(tmp_path / "cluster", datanodes=3, port=0) as cluster:
        address = cluster.http_address.removeprefix("http://")
        code = "\n".join([*blocks, _END]).replace(GUIDE_ADDRESS, address)
        environment = {
            **os.environ,
            **java_environment(find_java(), tmp_path),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false pyspark-shell",
        }
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=180, env=environment
        )
        assert done.returncode == 0, done.stderr[-3000:]
        with PeaceFileSystem(cluster.http_address) as files:
            assert files.exists("/checkpoints/alerts/commits/0")
            assert files.exists("/tables/alerts/_spark_metadata/0")
