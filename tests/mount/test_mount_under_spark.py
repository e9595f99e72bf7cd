"""Spark with `file://` checkpoints on a mount: its driver is killed, the mount is killed, and the rows are exact.

The expected rows are arithmetic. Spark is stock: it knows of peacefs only the directory.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.mounted_query import PROVIDERS
from support.mounted_tree import MountProcess, require_fuse
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import FileNotFound
from peacefs.spark_connector.demo.query_process import QueryProcess
from peacefs.spark_connector.demo.scratch import scratch_environment
from peacefs.spark_connector.java import find_java, java_environment

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(900)]
_TESTS = Path(__file__).parents[1]
_PARTS = 24
_ROWS = 50
_WORDS = 7


def counts_after(batch: int) -> dict[str, int]:
    """Return the counts of all words in the first files, one file a batch."""
    return {f"w{word}": (batch + 1) * len(range(word, _ROWS, _WORDS)) for word in range(_WORDS)}


class MountedQueries:
    """The queries of `support/mounted_query.py`, their mount, and what the cluster has of their checkpoints."""

    def __init__(self, cluster: LocalCluster, files: PeaceFileSystem, home: str, directory: Path) -> None:
        self._cluster, self._files, self._directory = cluster, files, directory
        self._checkpoints = f"{home}/checkpoints"
        (directory / "source").mkdir()
        for part in range(_PARTS):
            path = directory / "source" / f"{part}.txt"
            path.write_text("".join(f"w{row % _WORDS}\n" for row in range(_ROWS)))
            os.utime(path, (part + 1, part + 1))
        self.mount = self._mounted()
        where = self.mount.directory / self._checkpoints.lstrip("/")
        plan = {"source": f"{directory}/source", "checkpoints": str(where), "output": f"{directory}/output"}
        (directory / "plan.json").write_text(json.dumps(plan))
        self.driver = self.start()

    def _mounted(self) -> MountProcess:
        return MountProcess(self._cluster.http_address, self._directory / "peace")

    def mount_again(self) -> None:
        self.mount.close()
        self.mount = self._mounted()

    def start(self) -> QueryProcess:
        variables = {
            **java_environment(find_java(), self._directory / "java"),
            **scratch_environment(self._directory / "scratch"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(_TESTS), os.environ.get("PYTHONPATH")])),
        }
        self.driver = QueryProcess(
            "support.mounted_query", self._directory / "plan.json", self._directory / "driver.log", variables
        )
        return self.driver

    def committed(self) -> int:
        """Return the last batch that all queries have committed, as the cluster has it; -1 if there is none."""
        return min(self._last(name) for name in PROVIDERS)

    def _last(self, name: str) -> int:
        try:
            listed = self._files.list(f"{self._checkpoints}/{name}/commits")
            return max((int(each.name) for each in listed if each.name.isdecimal()), default=-1)
        except FileNotFound:
            return -1

    def await_more(self, batches: int) -> int:
        """Wait until the queries have committed more batches. Return the last one."""
        wanted = self.committed() + batches
        wait_until(lambda: self.committed() >= wanted or self.driver.status is not None, "more batches")
        assert self.driver.status is None, self.driver.last_words(30)
        return self.committed()

    def close(self) -> None:
        self.driver.kill()
        self.mount.close()


@pytest.mark.long("three drivers of Spark, one after the other")
def test_checkpoints_on_a_mount_are_exact_when_driver_and_mount_are_killed(
    shared_cluster: LocalCluster, home: str, files: PeaceFileSystem, tmp_path: Path
) -> None:
    require_fuse()
    queries = MountedQueries(shared_cluster, files, home, tmp_path)
    try:
        queries.await_more(3)
        queries.driver.kill()
        queries.start()
        first = queries.await_more(3)
        queries.mount.kill()
        wait_until(lambda: queries.driver.status is not None, "the queries stop: their checkpoints are gone")
        assert queries.driver.status != 0
        assert first < _PARTS - 1, "the mount was killed too late"
        queries.driver.kill()
        queries.mount_again()
        queries.start()
        wait_until(lambda: queries.driver.status is not None, "the queries end")
        assert queries.driver.status == 0, queries.driver.last_words(30)
        assert queries.committed() == _PARTS - 1
    finally:
        queries.close()
    for name in PROVIDERS:
        written = {int(path.name): json.loads(path.read_text()) for path in (tmp_path / "output" / name).iterdir()}
        assert written == {batch: counts_after(batch) for batch in range(_PARTS)}, name
