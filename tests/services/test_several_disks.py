"""A datanode with several data directories, as a process: one vanishes under it, the others go on."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster import LocalCluster

pytestmark = pytest.mark.cluster


@contextlib.contextmanager
def datanode(cluster: LocalCluster, directory: Path, *disks: Path) -> Iterator[Path]:
    """One more datanode of a local cluster; gives its log, once it has registered."""
    ready, theirs = os.pipe()
    member = cluster.coordinator.readiness
    command = [
        *(sys.executable, "-P", "-m", "peacefs", "datanode", f"--dir={directory}", "--port=0", "--data-port=0"),
        f"--coordinator={member.node_host}:{member.node_port}",
        f"--secret-file={cluster.directory / 'coordinator' / 'cluster.secret'}",
        f"--ready-fd={theirs}",
        *(f"--data-dir={disk}" for disk in disks),
    ]
    log = directory.with_suffix(".log")
    with log.open("w") as output:
        process = subprocess.Popen(command, stderr=output, pass_fds=[theirs])
    os.close(theirs)
    try:
        with os.fdopen(ready) as pipe:
            assert pipe.readline(), log.read_text()
        yield log
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()


def chunks_in(disk: Path) -> int:
    return sum(entry.is_file() for part in ("chunks", "segments") for entry in (disk / part).rglob("*"))


def test_a_disk_that_vanishes_costs_its_replicas_and_no_file(tmp_path: Path) -> None:
    disks = [tmp_path / f"disk-{number}" for number in range(3)]
    contents = {f"/f{number}": os.urandom(300_000) for number in range(30)}
    with (
        LocalCluster(tmp_path / "cluster", datanodes=1, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        with datanode(cluster, tmp_path / "home", *disks) as log:
            for path, data in contents.items():
                files.write(path, data, replication=2)
            assert all(chunks_in(disk) for disk in disks), "every disk has some"
            assert chunks_in(tmp_path / "home") == 0
            shutil.rmtree(disks[1])
            deadline = time.monotonic() + 60
            while "has failed" not in log.read_text():
                assert time.monotonic() < deadline, "nobody notices that a disk is gone"
                for path, data in contents.items():
                    assert files.read(path) == data
            while files.cluster_status()["chunks"]["under_replicated"]:
                assert time.monotonic() < deadline, "what the disk held is not replaced"
                time.sleep(0.1)
            files.write("/more", b"more", replication=2)
        with datanode(cluster, tmp_path / "home", disks[0], disks[2]):
            for path, data in contents.items():
                assert files.read(path) == data
