"""Our client, and open uploads, while the leading coordinator dies: nothing is lost."""

from __future__ import annotations

import http.client
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import fsspec
import httpx
import pytest
from support.failover_cluster import FailoverCluster, Service, failover_cluster
from support.supervised_world import accounts_of_tests
from support.waiting import PATIENCE_S, wait_until

from peacefs.client.control.supervised_queries import SupervisedQueries, WantedQuery
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.fsspec.filesystem import PeaceFsspecFileSystem
from peacefs.protocol.limits import MIB
from peacefs.protocol.values.supervised_queries import QueryPhase

pytestmark = pytest.mark.cluster


# Writes each number as a file of its checkpoint. It knows the coordinators from its agent.
COUNTER = """
import os, time
from peacefs.client.control.addresses import split_uri
from peacefs.client.filesystem import PeaceFileSystem
address, root = split_uri(os.environ["PEACEFS_CHECKPOINT"])
assert address.http == os.environ["PEACEFS_COORDINATOR"]
assert len(address.each) == 2, address
with PeaceFileSystem(address.http) as files:
    for number in range(10_000):
        files.write(f"{root}/{os.getpid()}-{number}", str(number).encode())
        time.sleep(0.1)
"""


class OpenBody:
    """A WebHDFS CREATE whose body is sent piece by piece to a datanode's gateway."""

    def __init__(self, cluster: FailoverCluster, path: str) -> None:
        told = cluster.ask("PUT", path, op="CREATE")
        url = urlsplit(told.headers["location"])
        assert url.hostname is not None
        self._wire = http.client.HTTPConnection(url.hostname, url.port, timeout=PATIENCE_S)
        self._wire.putrequest("PUT", f"{url.path}?{url.query}")
        self._wire.putheader("transfer-encoding", "chunked")
        self._wire.endheaders()

    def send(self, piece: bytes) -> None:
        self._wire.send(b"%x\r\n%s\r\n" % (len(piece), piece))

    def end(self) -> int:
        self._wire.send(b"0\r\n\r\n")
        answer = self._wire.getresponse()
        if answer.status != HTTPStatus.CREATED:
            print(answer.read().decode())
        self._wire.close()
        return answer.status


def test_failover_is_hardly_noticed_by_who_writes_and_reads(tmp_path: Path) -> None:
    with failover_cluster(tmp_path) as cluster:
        large = os.urandom(24 * MIB)
        with PeaceFileSystem("http://" + ",".join(cluster.http), "ann") as files:
            files.write("/before", b"before")
            sink, log = files.open_for_writing("/large", block_bytes=4 * MIB), files.open_for_writing("/log")
            sink.write(large[: 12 * MIB])
            log.write(b"one ")
            log.hflush()
            body = OpenBody(cluster, "/body")
            body.send(large[: 5 * MIB])
            cluster.coordinators[0].kill()
            began_s = time.monotonic()
            files.mkdirs("/after")
            print(f"the next one answered {time.monotonic() - began_s:.2f} s after the leader was killed")
            log.write(b"two")
            log.close()
            sink.write(large[12 * MIB :])
            sink.close()
            body.send(large[5 * MIB :])
            assert body.end() == 201
            assert files.read("/large") == files.read("/body") == large
            assert (files.read("/log"), files.read("/before")) == (b"one two", b"before")
            assert [entry.name for entry in files.list("/")] == ["after", "before", "body", "large", "log"]
            assert files.cluster_status()["datanodes"]
        url = f"peace://{','.join(cluster.http)}/large"
        fsspec.register_implementation("peace", PeaceFsspecFileSystem, clobber=True)
        with fsspec.open(url, user="ann") as source:
            assert source.read() == large
            source.fs.files.close()


def test_failover_that_takes_ten_seconds_is_ridden_out_by_open_bodies(tmp_path: Path) -> None:
    with failover_cluster(tmp_path) as cluster, ThreadPoolExecutor(1) as sender:
        data = os.urandom(9 * MIB)
        small, large = OpenBody(cluster, "/small"), OpenBody(cluster, "/large")
        small.send(b"small")
        large.send(data[: 4 * MIB])
        cluster.coordinators[1].pause()
        cluster.coordinators[0].kill()
        killed_s = time.monotonic()
        # The gateway buffers what fits, and sends the rest when there is a leader.
        sending = sender.submit(large.send, data[4 * MIB :])

        def nobody_leads() -> bool:
            with httpx.Client(trust_env=False, verify=False, timeout=1) as client:
                try:
                    client.get(f"http://{cluster.http[1]}/v1/status")
                except httpx.TransportError:
                    return True
            return False

        # A call waits 50 s for a leader, and the continuing one needs part of that.
        while time.monotonic() < killed_s + 10:
            assert nobody_leads()
        cluster.coordinators[1].go_on()
        sending.result(PATIENCE_S)
        assert (small.end(), large.end()) == (201, 201)
        assert (cluster.read("/small"), cluster.read("/large")) == (b"small", data)


def test_failover_of_the_coordinator_is_followed_by_an_agent(tmp_path: Path) -> None:
    commands = tmp_path / "commands.toml"
    program = f"program = '{sys.executable}'\narguments = ['-P', '-c', '''{COUNTER}''']\n"
    commands.write_text(f"runs_max = 1\n[commands.count]\n{program}{accounts_of_tests()}")
    with failover_cluster(tmp_path, datanodes=1) as cluster:

        def knows_agent(at: int) -> bool:
            answer = httpx.get(f"http://{cluster.http[at]}/v1/queries", timeout=30, trust_env=False, verify=False)
            return answer.is_success and [each["name"] for each in answer.json()["agents"]] == ["nimble"]

        addresses = ",".join(f"127.0.0.1:{port}" for port in reversed(cluster.node_ports))
        agent = Service(
            tmp_path / "agent.log",
            *("agent", f"--dir={tmp_path / 'agent'}", f"--commands={commands}", f"--coordinator={addresses}"),
            *("--name=nimble", f"--secret-file={cluster.secret}"),
        )
        agent.start()
        try:
            wait_until(lambda: knows_agent(0), "the agent passes over the standby")
            with (
                SupervisedQueries("http://" + ",".join(cluster.http), "root") as queries,
                PeaceFileSystem("http://" + ",".join(cluster.http), "root") as files,
            ):

                def counted() -> int:
                    return len(files.list("/count")) if files.exists("/count") else 0

                queries.register(WantedQuery("counting", ["count"], checkpoint="/count"))
                wait_until(lambda: counted() >= 3, "a run counts")
                run = queries.status("counting").run
                cluster.coordinators[0].kill()
                wait_until(lambda: knows_agent(1), "the agent has come to the next leader")
                before = counted()
                wait_until(lambda: counted() >= before + 5, "the same run goes on")
                status = queries.status("counting")
                assert (status.phase, status.run) == (QueryPhase.RUNNING.value, run)
        finally:
            agent.kill()
