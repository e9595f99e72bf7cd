"""A datanode process with several data directories: one disappears, the others continue."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from services.extra_datanode import extra_datanode
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

pytestmark = pytest.mark.cluster


def chunks_in(disk: Path) -> int:
    return sum(entry.is_file() for part in ("chunks", "segments") for entry in (disk / part).rglob("*"))


def _report(cluster: LocalCluster) -> str:
    command = [sys.executable, "-P", "-m", "peacefs", "report", "--coordinator", cluster.http_address]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.evidence("eio", "disk-fails-at-start")
def test_a_disk_that_vanishes_costs_its_replicas_and_no_file(tmp_path: Path) -> None:
    disks = [tmp_path / f"disk-{number}" for number in range(3)]
    contents = {f"/f{number}": os.urandom(300_000) for number in range(30)}
    with (
        LocalCluster(tmp_path / "cluster", datanodes=1, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        with extra_datanode(cluster, tmp_path / "home", *disks) as log:
            for path, data in contents.items():
                files.write(path, data, replication=2)
            assert all(chunks_in(disk) for disk in disks), "every disk has some"
            assert chunks_in(tmp_path / "home") == 0
            shutil.rmtree(disks[1])
            deadline = time.monotonic() + 180
            while "has failed" not in log.read_text():
                assert time.monotonic() < deadline, "nobody notices that a disk is gone"
                for path, data in contents.items():
                    assert files.read(path) == data
            wait_until(
                lambda: not files.cluster_status()["chunks"]["under_replicated"], "what the disk held is replaced"
            )
            files.write("/more", b"more", replication=2)
        broken = disks[1]
        broken.mkdir()
        # The kernel answers EIO to readers, because nothing is mapped at its start.
        (broken / "identity.json").symlink_to("/proc/self/mem")
        with extra_datanode(cluster, tmp_path / "home", *disks) as log:
            assert f"the disk of {broken} has failed" in log.read_text()
            wait_until(lambda: f"Disk: {broken} of" in _report(cluster), "the report names the disk")
            assert "is failed (cannot read" in _report(cluster)
            for path, data in contents.items():
                assert files.read(path) == data
            files.write("/on-the-others", b"more", replication=2)
        with extra_datanode(cluster, tmp_path / "home", disks[0], disks[2]):
            for path, data in contents.items():
                assert files.read(path) == data
