"""A datanode on a file system that fills up, and on one that becomes read-only.

Other disk faults are tested with simulated disks. These tests show that Linux behaves like the simulation.
Mounting needs root.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from services.extra_datanode import extra_datanode
from support.mounts import fill, mounted
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.limits import MIB

pytestmark = pytest.mark.cluster


def make_read_only(directory: Path) -> None:
    """Make the file system read-only for files opened from now on; open files stay open.

    Linux refuses to remount a file system while the datanode writes to it.
    """
    subprocess.run(["mount", "--bind", str(directory), str(directory)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(directory)], check=True)


class Health(NamedTuple):
    under_replicated: int
    missing: int


def health(files: PeaceFileSystem) -> Health:
    chunks = files.cluster_status()["chunks"]
    return Health(chunks["under_replicated"], chunks["missing"])


def state_of(files: PeaceFileSystem, disk: Path) -> str:
    """Return the disk's state as the coordinator shows it."""
    shown = (each for node in files.cluster_status()["datanodes"] for each in node["disks"])
    return next((str(each["state"]) for each in shown if each["directory"] == str(disk)), "not shown")


@pytest.mark.evidence("disk-full")
def test_a_disk_that_fills_up_refuses_the_write_goes_on_elsewhere_and_it_comes_back(tmp_path: Path) -> None:
    """Another program takes the space, faster than the coordinator learns of it."""
    contents = {f"/f{number}": os.urandom(MIB) for number in range(20)}
    with (
        mounted(tmp_path / "disk", 90 * MIB) as disk,
        LocalCluster(tmp_path / "cluster", datanodes=2, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
        extra_datanode(cluster, tmp_path / "home", disk, options=["--reserved-bytes=0"]) as log,
    ):
        paths = iter(contents)
        for path in itertools.islice(paths, 5):
            files.write(path, contents[path], replication=3)
        wait_until(lambda: health(files) == (0, 0), "three replicas each")
        filler = fill(disk)
        for path in paths:
            files.write(path, contents[path], replication=3)
        assert all(files.read(path) == data for path, data in contents.items())
        assert health(files).missing == 0
        wait_until(lambda: state_of(files, disk) == "full", "it is shown")
        wait_until(lambda: f"the disk of {disk} is full" in log.read_text(), "it is said")
        filler.unlink()
        wait_until(lambda: health(files) == (0, 0), "with room again it gets what it lacks")
        assert log.read_text().count(" is full") == 1, "not for every chunk"
        assert all(files.read(path) == data for path, data in contents.items())


@pytest.mark.evidence("disk-read-only")
def test_a_disk_that_becomes_read_only_is_noticed_shown_and_read_on_also_after_a_start(tmp_path: Path) -> None:
    contents = {f"/f{number}": os.urandom(size) for number, size in enumerate([1000, 2 * MIB] * 10)}
    home = tmp_path / "home"
    with (
        mounted(tmp_path / "disk", 200 * MIB) as disk,
        mounted(tmp_path / "other", 200 * MIB) as other,
        LocalCluster(tmp_path / "cluster", datanodes=1, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        with extra_datanode(cluster, home, disk, other, options=["--reserved-bytes=0"]):
            for path, data in contents.items():
                files.write(path, data, replication=2)
            make_read_only(disk)
            for number in range(20):
                files.write(f"/more{number}", contents["/f1"], replication=2)
            wait_until(lambda: state_of(files, disk) == "read-only", "nobody notices")
            assert health(files).missing == 0
        with extra_datanode(cluster, home, disk, other, options=["--reserved-bytes=0"]):
            wait_until(lambda: state_of(files, disk) == "read-only", "it is not shown after a start")
            cluster.members[1].kill()
            assert all(files.read(path) == data for path, data in contents.items())
