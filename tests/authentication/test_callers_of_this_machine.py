"""Callers on the coordinator's machine: the administrators' socket, and trusted names on loopback."""

from __future__ import annotations

import getpass
import os
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from peacefs.client.control.token_administration import TokenAdministration
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import PeacefsError, PeerUnreachable

pytestmark = pytest.mark.cluster

_ASK = """
import os, socket, sys
sock = socket.socket(socket.AF_UNIX)
sock.settimeout(20)
os.chdir(os.path.dirname(sys.argv[1]))
sock.connect(os.path.basename(sys.argv[1]))
try:
    sock.sendall(b"GET /v1/status HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    print("closed" if not sock.recv(100) else "let in")
except (ConnectionResetError, BrokenPipeError):
    print("closed")
"""


def _log(cluster: LocalCluster) -> str:
    return "".join(path.read_text() for path in (cluster.directory / "logs").glob("coordinator*"))


def test_local_socket_is_for_the_services_own_user(cluster):
    path = cluster.directory / "coordinator" / "admin" / "admin.socket"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with PeaceFileSystem(f"unix:{path}") as files:
        assert files.user == getpass.getuser()
        files.write("/by-the-socket", b"x" * 100_000, overwrite=True)
        assert files.read("/by-the-socket") == b"x" * 100_000
        assert files.status("/by-the-socket").owner == getpass.getuser()
        assert files.cluster_status()["ready"]
    with PeaceFileSystem(f"unix:{path}", "alice") as files:
        files.write("/user/alice/for-her", b"x", overwrite=True)
        assert files.status("/user/alice/for-her").owner == "alice"


@pytest.mark.skipif(os.geteuid() != 0, reason="another user can be had by root alone")
def test_local_socket_turns_another_user_away_even_where_modes_let_it_in(cluster, tmp_path):
    """This protects after a careless chmod -R, because the peer's user is checked, too."""
    path = cluster.directory / "coordinator" / "admin" / "admin.socket"
    me = getpass.getuser()
    opened = [path, *(parent for parent in path.parents if parent != Path("/") and parent.owner() == me)]
    modes = [(each, stat.S_IMODE(each.stat().st_mode)) for each in opened]
    try:
        for each, mode in modes:
            each.chmod(mode | 0o777)
        asked = subprocess.run(
            [sys.executable, "-c", _ASK, str(path)], user=65534, group=65534, capture_output=True, text=True
        )
    finally:
        for each, mode in modes:
            each.chmod(mode)
    assert asked.stdout == "closed\n", asked
    assert "user id 65534 was refused at the administrators' socket" in _log(cluster)


def test_simple_authentication_on_loopback_is_as_before(tmp_path):
    with LocalCluster(tmp_path, datanodes=1, port=0) as cluster:
        with PeaceFileSystem(cluster.http_address, "alice") as files:
            files.write("/user/alice/f", b"x")
            assert files.status("/user/alice/f").owner == "alice"
        assert httpx.get(f"{cluster.http_address}/v1/status", trust_env=False, verify=False).status_code == 200
        nothing = httpx.get(
            f"{cluster.http_address}/webhdfs/v1/?op=GETDELEGATIONTOKEN", trust_env=False, verify=False
        )
        assert nothing.json() == {"Token": None}
        with (
            TokenAdministration(cluster.http_address) as administration,
            pytest.raises(PeacefsError, match="believes names"),
        ):
            administration.create("alice", 600)
        assert "authentication simple: user names are believed" in _log(cluster)
        # The local socket exists, too.
        with PeaceFileSystem(f"unix:{tmp_path}") as files:
            assert files.read("/user/alice/f") == b"x"


def test_local_socket_that_nobody_listens_on_is_said_in_one_line(tmp_path):
    with (
        PeaceFileSystem(f"unix:{tmp_path}") as files,
        pytest.raises(PeerUnreachable, match="no coordinator listens"),
    ):
        files.cluster_status()
