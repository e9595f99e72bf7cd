"""Ten thousand silent connections to a cluster: others are served, and memory is bounded."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.long_runs import often

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.limits import MIB

pytestmark = pytest.mark.cluster
#: At each of the four ports.
_CONNECTIONS = often(2500, 10_000)
#: Memory of a process for all of them: thousands of open sockets, or a thousand threads.
_MEMORY_BYTES_MAX = often(75, 150) * MIB


@contextlib.contextmanager
def silent_connections(host: str, port: int, count: int) -> Iterator[None]:
    """Keep connections open within the block, as far as the other side allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count + 1000:
        pytest.skip(f"no more than {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.ExitStack() as kept:
        kept.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(count):
            kept.enter_context(socket.create_connection((host, port), timeout=180))
        yield


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("a process without memory")


@pytest.mark.evidence("silent-connections")
def test_ten_thousand_connections_that_send_nothing_keep_nobody_out(tmp_path: Path) -> None:
    with (
        LocalCluster(tmp_path / "cluster", datanodes=1, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        coordinator, datanode = cluster.coordinator, cluster.datanodes[0]
        name_side, data_side = coordinator.readiness, datanode.readiness
        ports = [
            (coordinator, name_side.http_port),
            (coordinator, name_side.node_port),
            (datanode, data_side.http_port),
            (datanode, data_side.data_port),
        ]
        for member, port in ports:
            before_bytes = resident_bytes(member.pid)
            with (
                silent_connections("127.0.0.1", port, _CONNECTIONS),
                PeaceFileSystem(cluster.http_address) as other,
            ):
                other.write(f"/{port}", b"meanwhile", replication=1)
                assert other.read(f"/{port}") == b"meanwhile"
                grown_bytes = resident_bytes(member.pid) - before_bytes
                print(f"port {port}: {grown_bytes / MIB:.0f} MiB more")
                assert grown_bytes < _MEMORY_BYTES_MAX
        assert files.cluster_status()["datanodes"][0]["state"] == "alive"
