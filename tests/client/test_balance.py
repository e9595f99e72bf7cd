"""`peacefs balance` on a real cluster that has grown: it moves chunks, prints the outcome, and exits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from peacefs.client.command_line import balance as command
from peacefs.client.command_line.application import application
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.limits import MIB, balance_bytes_per_second_min

pytestmark = pytest.mark.cluster

WaitUntil = Callable[..., None]
FILES = 30


def run(cluster: LocalCluster, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(
        application, ["balance", *arguments], env={"PEACEFS_COORDINATOR": cluster.http_address}
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def replicas(files: PeaceFileSystem) -> list[int]:
    return [datanode["replicas"] for datanode in files.cluster_status()["datanodes"]]


def threshold(files: PeaceFileSystem) -> str:
    """Return a threshold of two files, whatever the size of the disk."""
    capacity = max(datanode["capacity_bytes"] for datanode in files.cluster_status()["datanodes"])
    return f"{100 * 2.5 * MIB / capacity:.12f}"


def test_a_datanode_that_came_later_gets_its_share(tmp_path: Path, wait_until: WaitUntil) -> None:
    contents = {f"/f/{number}": os.urandom(MIB) for number in range(FILES)}
    with LocalCluster(tmp_path, datanodes=2, port=0) as cluster, PeaceFileSystem(cluster.http_address) as files:
        for path, data in contents.items():
            files.write(path, data, replication=1)
    with LocalCluster(tmp_path, datanodes=3, port=0) as cluster, PeaceFileSystem(cluster.http_address) as files:
        wait_until(lambda: sum(replicas(files)) == FILES, "all have reported")
        assert min(replicas(files)) == 0
        near = threshold(files)

        # Killing a command ends its run. Until then no other run can begin.
        slow = [f"--threshold={near}", f"--rate={balance_bytes_per_second_min}"]
        killed = subprocess.Popen(
            [sys.executable, "-m", "peacefs", "balance", *slow, "-c", cluster.http_address],
            stdout=subprocess.PIPE,
            text=True,
        )
        wait_until(lambda: files.renew_balancing("looking").phase == "running", "the first one runs")
        status, said, _ = run(cluster, "--threshold=100")
        assert (status, said.partition(":")[0]) == (255, "another run is under way")
        killed.send_signal(signal.SIGINT)
        assert killed.communicate(timeout=180)[0].startswith("cancelled: ")
        assert killed.returncode == 250

        status, said, complaint = run(cluster, f"--threshold={near}", "--json")
        assert (status, complaint) == (0, ""), said
        result: dict[str, Any] = json.loads(said)
        assert (result["phase"], result["bytes_left"], result["moves_failed"]) == ("balanced", 0, 0)
        assert result["bytes_moved"] == result["replicas_moved"] * MIB
        wait_until(
            lambda: sum(replicas(files)) == FILES and min(replicas(files)) >= FILES // 3 - 3, "all balanced"
        )
        assert {path: files.read(path) for path in contents} == contents
        assert run(cluster)[:2] == (0, "balanced: 0 replicas, 0B moved, 0B left to move\n")


def test_balance_without_sense_is_refused(shared_cluster: LocalCluster, superuser: PeaceFileSystem) -> None:
    assert run(shared_cluster, "--threshold", "101")[0] == 2
    assert run(shared_cluster, "--rate", "1")[0] == 2
    status, said, complaint = run(shared_cluster, "--threshold", "0")
    assert (status, said) == (1, "")
    assert complaint.startswith("peacefs: balance: body.threshold_percent: ")
    with pytest.raises(BadRequest, match="bytes_per_second"):
        superuser.start_balancing("run", 10.0, 0)


def test_a_run_that_nobody_knows_of_any_more_is_not_taken_for_one_s_own(superuser: PeaceFileSystem) -> None:
    started = superuser.start_balancing("first", 10.0, MIB)
    assert started.run == "first"
    assert superuser.renew_balancing("forgotten").run == "first"
    assert command.ending("forgotten", "first", superuser.cancel_balancing("first").phase)[0] == 252
