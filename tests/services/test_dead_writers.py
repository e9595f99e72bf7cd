"""Writers and gateways are killed in the middle of a file: the space is freed, and no file loses data."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator

import pytest
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

pytestmark = pytest.mark.cluster

_KEPT_S = 10.0
_DATA = os.urandom(1 << 20)

#: Writes over two chunks, reports that, and waits for ever.
_WRITER = """
import os, sys, time
from peacefs.client.filesystem import PeaceFileSystem

with PeaceFileSystem(sys.argv[1]) as files:
    sink = files.open_for_writing("/never", replication=3, block_bytes=1 << 20)
    for _ in range(8):
        sink.write(os.urandom(1 << 20))
    print("written", flush=True)
    time.sleep(3600)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    options = [f"--unreferenced-kept={_KEPT_S:g}"]
    with LocalCluster(tmp_path_factory.mktemp("c"), datanodes=3, port=0, coordinator_options=options) as made:
        yield made


def unreferenced_chunks(files: PeaceFileSystem) -> int:
    count: int = files.cluster_status()["unreferenced"]["chunks"]
    return count


@pytest.mark.evidence("writers-killed")
def test_killed_writer_leaves_nothing_for_long(cluster: LocalCluster) -> None:
    with PeaceFileSystem(cluster.http_address) as files:
        files.write("/kept", _DATA)
        writer = subprocess.Popen(
            [sys.executable, "-P", "-c", _WRITER, cluster.http_address], stdout=subprocess.PIPE
        )
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"written\n"
            wait_until(lambda: unreferenced_chunks(files) >= 2, "chunks of the file lie on datanodes")
        finally:
            writer.kill()
            writer.communicate()
        # Kill the coordinator, too: numbers that it has drawn are on its disk.
        cluster.coordinator.kill()
        cluster.restart(cluster.coordinator)
        wait_until(lambda: files.cluster_status()["ready"], "the coordinator is ready")
        wait_until(lambda: unreferenced_chunks(files) == 0, "what the dead writer left is gone", 12 * _KEPT_S)
        assert files.read("/kept") == _DATA
        assert not files.exists("/never")


@pytest.mark.evidence("writers-killed")
@pytest.mark.long("the same with a client is always run")
def test_killed_gateway_leaves_nothing_for_long(cluster: LocalCluster) -> None:
    with PeaceFileSystem(cluster.http_address) as files:
        files.write("/kept-too", _DATA)
        address = cluster.address
        asking = http.client.HTTPConnection(*address.http.rsplit("/", 1)[-1].split(":"))
        asking.request("PUT", "/webhdfs/v1/half?op=CREATE&blocksize=1048576&replication=3&user.name=ann")
        redirect = urllib.parse.urlsplit(asking.getresponse().headers["location"])
        asking.close()
        sending = http.client.HTTPConnection(redirect.hostname or "", redirect.port)
        sending.putrequest("PUT", f"{redirect.path}?{redirect.query}")
        sending.putheader("Content-Length", str(100 << 20))
        sending.endheaders()
        for _ in range(8):
            sending.send(_DATA)
        wait_until(lambda: unreferenced_chunks(files) >= 2, "chunks of the file lie on datanodes")
        gateway = next(each for each in cluster.datanodes if each.readiness.http_port == redirect.port)
        gateway.kill()
        sending.close()
        cluster.restart(gateway)
        wait_until(lambda: unreferenced_chunks(files) == 0, "what the dead gateway left is gone", 12 * _KEPT_S)
        assert files.read("/kept-too") == _DATA
        # An upload that pauses is visible with the data received so far, as files under construction are in HDFS.
        shown = files.read("/half") if files.exists("/half") else b""
        assert (8 * _DATA).startswith(shown)
