"""One client takes as much of a service as it can: memory is bounded, and another client is served."""

from __future__ import annotations

import contextlib
import socket

import pytest
from hostile.doors import doors_of
from hostile.watch import MEMORY_BYTES_MAX, Held, Watch

from peacefs.client.local_cluster.cluster import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
_HEAD = b"Host: 127.0.0.1\r\n"
_JSON = b"POST /v1/files/complete HTTP/1.1\r\n" + _HEAD + b"Content-Type: application/json\r\n"
#: Bytes that each of many connections sends.
_CROWDS = {
    "heads without an end": (300, b"GET / HTTP/1.1\r\n" + _HEAD + b"X: " + b"x" * 120_000),
    "many short headers": (300, b"GET / HTTP/1.1\r\n" + _HEAD + b"a:b\r\n" * 25_000),
    "bodies without an end": (40, _JSON + b"Content-Length: 8000000\r\n\r\n" + b"x" * 7_900_000),
    "requests without an end": (100, (b"GET / HTTP/1.1\r\n" + _HEAD + b"\r\n") * 6000),
    "answers that nobody reads": (300, b"GET /v1/docs/swagger-ui-bundle.js HTTP/1.1\r\n" + _HEAD + b"\r\n"),
    "connections that say nothing": (2500, b""),
}


def connected(port: int, source: str) -> socket.socket:
    """Connect from another address, which makes it another client for the service."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=120, source_address=(source, 0))
    connection.settimeout(0.5)
    return connection


@pytest.mark.parametrize("what", _CROWDS)
@pytest.mark.parametrize("name", ["coordinator HTTP", "datanode HTTP"])
def test_crowd_of_one_client_leaves_memory_and_service_to_others(
    cluster: LocalCluster, name: str, what: str
) -> None:
    watch = Watch(cluster)
    door = next(door for door in doors_of(cluster) if door.name == name)
    assert door.port is not None
    member = cluster.coordinator if name == "coordinator HTTP" else cluster.datanodes[0]
    before = Held.by(member)
    count, data = _CROWDS[what]
    with contextlib.ExitStack() as crowd:
        for _ in range(count):
            connection = crowd.enter_context(connected(door.port, "127.0.0.1"))
            with contextlib.suppress(OSError):
                connection.sendall(data)
        with connected(door.port, "127.0.0.2") as other:
            other.settimeout(20)
            other.sendall(b"GET / HTTP/1.1\r\n" + _HEAD + b"\r\n")
            assert other.recv(100).startswith(b"HTTP/1.1 200 ")
        grown = Held.by(member).memory_bytes - before.memory_bytes
        assert grown <= MEMORY_BYTES_MAX, f"grew by {grown >> 20} MiB"
    watch.check()
