"""`peacefs datanodes`: a datanode of a real cluster is drained, and can then be switched off without loss."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from peacefs.client.command_line.application import application
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.limits import small_chunk_bytes_max

pytestmark = pytest.mark.cluster

WaitUntil = Callable[..., None]


def run(cluster: LocalCluster, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(
        application, ["datanodes", *arguments], env={"PEACEFS_COORDINATOR": cluster.http_address}
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def listed(cluster: LocalCluster) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(cluster, "ls", "--json")[1].splitlines()]


def is_listed(cluster: LocalCluster, **expected: str) -> bool:
    """Return whether a datanode is listed with these values."""
    return any(expected.items() <= record.items() for record in listed(cluster))


def test_a_datanode_is_drained_and_switched_off_without_a_replica_lost(
    tmp_path: Path, wait_until: WaitUntil
) -> None:
    with LocalCluster(tmp_path, datanodes=4, port=0) as cluster, PeaceFileSystem(cluster.http_address) as files:
        contents = {f"/f/{number}": os.urandom(size) for number, size in enumerate([700, 9000] * 5)}
        contents["/f/large"] = os.urandom(3 * small_chunk_bytes_max)
        for path, data in contents.items():
            files.write(path, data)
        victim = cluster.datanodes[0]
        node = victim.readiness.node
        status, said, _ = run(cluster, "decommission", node)
        assert status == 0
        assert said.startswith(f"{node} 127.0.0.1:{victim.readiness.data_port} is decommission")
        # The decision is in the metadata, so it survives a restart of the coordinator.
        cluster.coordinator.kill()
        cluster.restart(cluster.coordinator)
        wait_until(lambda: is_listed(cluster, node=node, service="decommissioned"), "it is drained")
        victim.kill()
        wait_until(lambda: is_listed(cluster, node=node, state="dead"), "it is dead")
        chunks = files.cluster_status()["chunks"]
        assert (chunks["under_replicated"], chunks["missing"], chunks["being_repaired"]) == (0, 0, 0)
        assert {path: files.read(path) for path in contents} == contents


def test_one_that_can_never_be_drained_says_so_until_it_can(tmp_path: Path, wait_until: WaitUntil) -> None:
    with LocalCluster(tmp_path, datanodes=2, port=0) as cluster, PeaceFileSystem(cluster.http_address) as files:
        files.write("/f", b"data", replication=2)
        node = cluster.datanodes[0].readiness.node
        status, said, _ = run(cluster, "decommission", node)
        assert status == 0
        assert "1 chunks want more replicas than there are datanodes that stay" in said
        assert f"{node} cannot leave yet: 1 chunks" in run(cluster, "ls")[1]
        files.set_replication("/f", 1)
        wait_until(lambda: is_listed(cluster, node=node, service="decommissioned"), "it may go")
        assert "cannot leave" not in run(cluster, "ls")[1]


def test_a_datanode_in_maintenance_is_waited_for(tmp_path: Path, wait_until: WaitUntil) -> None:
    with LocalCluster(tmp_path, datanodes=4, port=0) as cluster, PeaceFileSystem(cluster.http_address) as files:
        for number in range(5):
            files.write(f"/f/{number}", os.urandom(9000))
        victim = cluster.datanodes[0]
        node = victim.readiness.node
        assert run(cluster, "maintenance", "--hours", "0", node)[0] != 0
        assert run(cluster, "maintenance", "--hours", "1.5", node)[0] == 0
        wait_until(lambda: is_listed(cluster, node=node, service="in maintenance"), "it may be switched off")
        victim.kill()
        wait_until(lambda: is_listed(cluster, node=node, state="dead"), "it is dead")
        status = files.cluster_status()
        assert (status["replicas_lost_total"], status["chunks"]["under_replicated"]) == (0, 0)
        cluster.restart(victim)
        assert run(cluster, "recommission", node)[0] == 0
        wait_until(lambda: is_listed(cluster, node=node, state="alive", service="in service"), "it serves again")
        assert files.cluster_status()["repaired_total"] == 0


def test_datanodes_are_listed_and_named_in_more_than_one_way(shared_cluster: LocalCluster) -> None:
    status, said, _ = run(shared_cluster, "ls")
    assert status == 0
    assert said.splitlines()[0].split("  ")[0] == "DATANODE"
    assert len(said.splitlines()) == 1 + len(shared_cluster.datanodes)
    member = shared_cluster.datanodes[0].readiness
    for name in (member.node, f"127.0.0.1:{member.data_port}"):
        status, said, _ = run(shared_cluster, "recommission", name)
        assert (status, said) == (0, f"{member.node} 127.0.0.1:{member.data_port} is in service\n")


@pytest.mark.parametrize("name", ["nobody", ""])
def test_a_name_that_fits_none_or_many_changes_nothing(shared_cluster: LocalCluster, name: str) -> None:
    status, said, complaint = run(shared_cluster, "decommission", name)
    assert (status, said) == (1, "")
    assert complaint.startswith("peacefs: datanodes: ")
    assert {each["service"] for each in listed(shared_cluster)} == {"in service"}


def test_the_coordinator_refuses_a_datanode_that_it_never_saw(superuser: PeaceFileSystem) -> None:
    with pytest.raises(BadRequest, match="no datanode nobody"):
        superuser.decide_about_datanode("nobody", "decommission")
