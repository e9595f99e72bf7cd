"""`peacefs datanodes revoke` and its undo, and a cluster secret that is replaced, on a real cluster."""

from __future__ import annotations

import json
import os
import secrets
import signal
import stat
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until
from typer.testing import CliRunner

from peacefs.client.command_line.application import application
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.client.local_cluster.member_process import LocalMember
from peacefs.protocol.errors import StartupError

pytestmark = pytest.mark.cluster


def run(cluster: LocalCluster, *arguments: str) -> str:
    result = CliRunner().invoke(
        application, ["datanodes", *arguments], env={"PEACEFS_COORDINATOR": cluster.http_address}
    )
    assert result.exit_code == 0, result.stderr
    return result.stdout


def credentials(cluster: LocalCluster) -> dict[str, dict[str, Any]]:
    found = [json.loads(line) for line in run(cluster, "credentials", "--json").splitlines()]
    return {each["node"]: each for each in found}


def times_read_again(member: LocalMember) -> int:
    assert member.log is not None
    return member.log.read_text().count("the cluster secret was reloaded")


def state_of(files: PeaceFileSystem, node: str) -> str | None:
    return {each["node"]: each["state"] for each in files.cluster_status()["datanodes"]}.get(node)


@pytest.mark.evidence("datanode-impersonated")
def test_a_revoked_datanode_is_out_and_its_replicas_are_made_up_for(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, datanodes=4, port=0) as cluster, PeaceFileSystem(cluster.http_address) as files:
        contents = {f"/f/{number}": os.urandom(5000) for number in range(8)}
        for path, data in contents.items():
            files.write(path, data)
        victim = cluster.datanodes[0]
        node = victim.readiness.node
        keys = list(tmp_path.rglob("credential.key"))
        assert [stat.S_IMODE(key.stat().st_mode) for key in keys] == [0o600] * 4
        enrolled = credentials(cluster)
        assert len({each["fingerprint"] for each in enrolled.values()}) == 4

        assert run(cluster, "revoke", node) == f"{node} is revoked\n"
        assert state_of(files, node) == "dead"
        assert credentials(cluster)[node]["revoked_ms"] is not None
        wait_until(lambda: files.cluster_status()["chunks"]["under_replicated"] == 0, "what it held is copied")
        wait_until(lambda: "was revoked" in victim.last_words, "it has been told why")
        # The revocation survives a restart of the coordinator, when the datanode tries again.
        cluster.coordinator.kill()
        cluster.restart(cluster.coordinator)
        wait_until(lambda: files.cluster_status()["ready"], "the coordinator is back")
        assert state_of(files, node) is None
        for path, data in contents.items():
            assert files.read(path) == data

        assert run(cluster, "readmit", node[:-2]) == f"{node} may register again\n"
        wait_until(lambda: state_of(files, node) == "alive", "it is let in")
        assert credentials(cluster) == enrolled


def test_a_datanode_that_lost_its_key_is_told_what_to_do_and_comes_back_when_that_is_done(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, datanodes=1, port=0) as cluster, PeaceFileSystem(cluster.http_address) as files:
        files.write("/f", b"kept", replication=1)
        datanode = cluster.datanodes[0]
        node = datanode.readiness.node
        before = credentials(cluster)[node]["fingerprint"]
        datanode.kill()
        [key] = tmp_path.rglob("credential.key")
        key.unlink()
        with pytest.raises(StartupError, match=f"peacefs datanodes forget {node}"):
            cluster.restart(datanode)
        run(cluster, "forget", node)
        cluster.restart(datanode)
        assert credentials(cluster)[node]["fingerprint"] != before
        assert files.read("/f") == b"kept"


def test_a_cluster_secret_is_replaced_while_the_cluster_goes_on(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, datanodes=2, port=0) as cluster, PeaceFileSystem(cluster.http_address) as files:
        [file] = tmp_path.rglob("cluster.secret")
        old, new = file.read_text().strip(), secrets.token_urlsafe(32)
        for step, lines in enumerate(([old, new], [new, old], [new])):
            file.write_text("\n".join(lines) + "\n")
            for number, member in enumerate(cluster.members):
                os.kill(member.pid, signal.SIGHUP)
                wait_until(lambda m=member, s=step: times_read_again(m) == s + 1, "it has read the file")
                # In the middle of a step services have different secrets, and still work.
                files.write(f"/{step}-{number}", b"written", replication=2)
                assert files.read(f"/{step}-{number}") == b"written"
        # Make a new connection between services, which needs the new secret.
        cluster.datanodes[0].kill()
        cluster.restart(cluster.datanodes[0])
        files.write("/after", b"written", replication=2)
        assert files.cluster_status()["datanodes"][0]["state"] == "alive"
