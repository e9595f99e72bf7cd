"""Two drivers on one checkpoint: the newer continues, the older stops, says why, and has changed nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.long_runs import often
from support.waiting import wait_until
from typer.testing import CliRunner

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.command import application
from peacefs.spark_connector.checkpoints.batches import Checkpoint
from peacefs.spark_connector.java import find_java, java_environment
from peacefs.spark_connector.runs import begin_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

ROOT = "/checkpoints/words"
SCRIPT = Path(__file__).parent.parent / "support" / "counting_query.py"
BATCH_S = 120.0
wait_for = partial(wait_until, timeout_s=BATCH_S)


class Drivers:
    """A driver process and its input. The newer driver runs in the tests' own session."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self.cluster = cluster
        self.source, self.output, self.log = directory / "in", directory / "out", directory / "older.log"
        self.source.mkdir()
        self.output.mkdir()
        self.words: Counter[str] = Counter()
        self.checkpoint = f"{cluster.webhdfs_uri}{ROOT}"
        self._directory = directory
        variables = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        with self.log.open("wb") as log:
            self.older = subprocess.Popen(
                [sys.executable, "-P", str(SCRIPT), self.checkpoint, str(self.source), str(self.output)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **java_environment(find_java(), directory / "java"), **variables},
                start_new_session=True,
            )

    def put(self, part: int) -> None:
        words = [f"word-{(part * 7 + row) % 11}" for row in range(50)]
        self.words.update(words)
        staged = self._directory / f"{part}.staged"
        staged.write_text("".join(f"{word}\n" for word in words))
        staged.rename(self.source / f"{part}.txt")

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.older.pid, signal.SIGKILL)
        self.older.wait()


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[Drivers]:
    with LocalCluster(tmp_path / "cluster", datanodes=3, port=0) as cluster:
        made = Drivers(cluster, tmp_path)
        yield made
        made.stop()


@pytest.mark.evidence("two-drivers")
def test_a_driver_that_another_has_taken_over_from_dies_at_its_next_batch(
    spark: SparkSession, drivers: Drivers
) -> None:
    from support.counting_query import start

    with PeaceFileSystem(drivers.cluster.http_address) as files:
        committed = Checkpoint(files, ROOT).committed
        batches = often(1, 2)
        for part in range(batches):
            drivers.put(part)
        wait_for(
            lambda: committed() == batches - 1 or drivers.older.poll() is not None,
            f"{batches} batches of the older driver",
        )
        location = begin_run(drivers.checkpoint).location
        younger = start(spark, location, str(drivers.source), str(drivers.output), supervised=False)
        try:
            last = batches + often(1, 2) - 1
            for part in range(batches, last + 1):
                drivers.put(part)
                wait_for(lambda part=part: committed() == part or not younger.isActive, f"batch {part}")
            wait_for(lambda: drivers.older.poll() is not None, "the older driver's end")
            assert younger.isActive, younger.exception()
            wait_for((drivers.output / str(last)).exists, "the last result")
        finally:
            younger.stop()
    said = drivers.log.read_text()
    assert f"of {ROOT} may write no more" in said
    assert "has taken over" in said and f"process {os.getpid()} on " in said
    assert json.loads((drivers.output / str(last)).read_text()) == drivers.words
    verified = CliRunner().invoke(
        application, ["checkpoint", "verify", ROOT, f"--coordinator={drivers.cluster.http_address}"]
    )
    assert (verified.exit_code, f"batch {last} is good" in verified.stdout) == (0, True), verified.output
