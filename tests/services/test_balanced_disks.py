"""A datanode process gets a second disk, and `peacefs balance --disks` fills it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from services.extra_datanode import extra_datanode
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.limits import MIB, balance_bytes_per_second_min

pytestmark = pytest.mark.cluster

FILES = 12


def command(cluster: LocalCluster, *options: str) -> list[str]:
    return [sys.executable, "-P", "-m", "peacefs", "balance", "--disks", "-c", cluster.http_address, *options]


def run(cluster: LocalCluster, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(cluster, *options), capture_output=True, text=True, timeout=180)


def disks_of(files: PeaceFileSystem) -> tuple[str, list[dict[str, Any]]]:
    """Return the datanode with several disks, and their states."""
    found = [each for each in files.cluster_status()["datanodes"] if len(each["disks"]) > 1]
    return (found[0]["node"], found[0]["disks"]) if found and found[0]["state"] == "alive" else ("", [])


def copies(disks: list[Path]) -> list[int]:
    """Return the number of chunk files in each directory."""
    return [sum(entry.is_file() for entry in (disk / "chunks").rglob("*")) for disk in disks]


@pytest.mark.long("moves data slowly")
def test_a_new_disk_is_filled_by_command_and_only_while_that_runs(tmp_path: Path) -> None:
    home, disks = tmp_path / "home", [tmp_path / "disk-1", tmp_path / "disk-2"]
    contents = {f"/f{number}": os.urandom(MIB) for number in range(FILES)}
    with (
        LocalCluster(tmp_path / "cluster", datanodes=1, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        with extra_datanode(cluster, home, disks[0]):
            for path, data in contents.items():
                files.write(path, data, replication=2)
            refused = run(cluster)
            assert refused.returncode == 1 and "has several disks" in refused.stderr, refused
        with extra_datanode(cluster, home, *disks):
            wait_until(lambda: sum(disk["replicas"] for disk in disks_of(files)[1]) == FILES, "all is reported")
            node, shown = disks_of(files)
            near = f"--threshold={100 * 1.5 * MIB / min(disk['capacity_bytes'] for disk in shown):.12f}"
            slow = subprocess.Popen(
                command(cluster, near, f"--rate={balance_bytes_per_second_min}"), stdout=subprocess.PIPE, text=True
            )
            wait_until(lambda: bool(list((disks[1] / "staging").iterdir())), "the first is being copied")
            other = run(cluster, near)
            assert other.returncode == 255 and "another run is under way" in other.stdout
            slow.send_signal(signal.SIGINT)
            assert f"{node}: cancelled" in slow.communicate(timeout=180)[0] and slow.returncode == 250
            wait_until(lambda: not list((disks[1] / "staging").iterdir()), "what was begun is given up")
            assert copies(disks) == [FILES, 0]

            done = run(cluster, near, "--json", f"--node={node}")
            (status,) = json.loads(done.stdout)
            assert (done.returncode, status["phase"], status["moves_failed"]) == (0, "balanced", 0), done
            assert status["bytes_left"] == 0
            assert status["bytes_moved"] == status["replicas_moved"] * MIB
            assert sum(copies(disks)) == FILES and min(copies(disks)) >= FILES // 2 - 2
            assert run(cluster, near).stdout == f"{node}: balanced: 0 replicas, 0B moved, 0B left to move\n"
            assert {path: files.read(path) for path in contents} == contents
        assert run(cluster, "--node=nobody").stderr == "peacefs: balance: no datanode nobody is connected\n"
