"""Uploads over WebHDFS while the services that handle them are killed, as processes."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from types import TracebackType
from urllib.parse import urlsplit

import pytest
from support.waiting import PATIENCE_S, wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import AlreadyBeingCreated, FileNotFound

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), datanodes=3, port=0) as cluster:
        yield cluster


@pytest.fixture
def files(cluster: LocalCluster) -> Iterator[PeaceFileSystem]:
    with PeaceFileSystem(cluster.http_address) as files:
        yield files


class Writing:
    """A CREATE in two steps, as Hadoop's client sends it, with the body piece by piece."""

    def __init__(self, cluster: LocalCluster, path: str) -> None:
        address = urlsplit(cluster.http_address)
        assert address.hostname is not None
        asked = http.client.HTTPConnection(address.hostname, address.port, timeout=PATIENCE_S)
        asked.request("PUT", f"/webhdfs/v1{path}?op=CREATE&replication=3")
        redirect = asked.getresponse()
        assert redirect.status == 307, redirect.read()
        location = redirect.headers["location"]
        asked.close()
        there = urlsplit(location)
        assert there.hostname is not None and there.port is not None
        self.http_port = there.port
        self._wire = socket.create_connection((there.hostname, there.port), timeout=PATIENCE_S)
        head = f"PUT {there.path}?{there.query} HTTP/1.1\r\nhost: {there.netloc}\r\n"
        self._wire.sendall(f"{head}transfer-encoding: chunked\r\n\r\n".encode())

    def flush(self, piece: bytes) -> None:
        self._wire.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))

    def close(self) -> int:
        """Return the status of the answer."""
        self._wire.sendall(b"0\r\n\r\n")
        return int(self._wire.recv(65536).split()[1])

    def __enter__(self) -> Writing:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._wire.close()


def length(files: PeaceFileSystem, path: str) -> int | None:
    try:
        return files.status(path).length
    except FileNotFound:
        return None


def restart_coordinator(cluster: LocalCluster) -> None:
    cluster.coordinator.kill()
    cluster.restart(cluster.coordinator)


def test_file_that_was_shown_grows_on_after_its_coordinator_was_killed(
    cluster: LocalCluster, files: PeaceFileSystem
) -> None:
    with Writing(cluster, "/shown") as writing:
        writing.flush(b"one")
        wait_until(lambda: length(files, "/shown") == 3, "what was flushed is not seen")
        restart_coordinator(cluster)
        assert length(files, "/shown") == 3
        writing.flush(b"two")
        wait_until(lambda: length(files, "/shown") == 6, "it does not grow any more")
        assert writing.close() == 201
    assert files.read("/shown") == b"onetwo"


def test_file_that_was_only_begun_is_written_after_its_coordinator_was_killed(
    cluster: LocalCluster, files: PeaceFileSystem
) -> None:
    with Writing(cluster, "/begun") as writing:
        restart_coordinator(cluster)
        writing.flush(b"whole")
        wait_until(lambda: length(files, "/begun") == 5, "it has not appeared by itself")
        assert writing.close() == 201
    assert files.read("/begun") == b"whole"


def test_file_whose_gateway_was_killed_keeps_what_had_come(cluster: LocalCluster, files: PeaceFileSystem) -> None:
    with Writing(cluster, "/orphan") as writing:
        writing.flush(b"kept")
        wait_until(lambda: length(files, "/orphan") == 4, "what was flushed is not seen")
        (gateway,) = (node for node in cluster.datanodes if node.readiness.http_port == writing.http_port)
        gateway.kill()
        assert files.read("/orphan") == b"kept"
        with pytest.raises(AlreadyBeingCreated):
            files.open_for_appending("/orphan")
        assert files.recover_lease("/orphan")
        with files.open_for_appending("/orphan") as heir:
            heir.write(b" on")
        cluster.restart(gateway)
    assert files.read("/orphan") == b"kept on"
