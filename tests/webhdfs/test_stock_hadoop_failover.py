"""The Hadoop client that PySpark bundles, with the settings of `peacefs spark conf` for several coordinators."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("py4j.protocol")

from support.stock_hadoop import Hadoop, running_hadoop

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import PeacefsError, Standby, remote_exception
from peacefs.spark_connector.session import as_dict, settings

pytestmark = [pytest.mark.spark, pytest.mark.cluster]
MIB = 1 << 20


class Front(ThreadingHTTPServer):
    """A server in front of a coordinator. It refuses requests, or redirects clients to the coordinator."""

    def __init__(self, leader: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.leader = leader
        self.refusal: PeacefsError | None = None
        self.requests = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Front
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        front = self.server
        front.requests += 1
        if front.refusal is not None:
            body = json.dumps(remote_exception(front.refusal)).encode()
            self.send_response(front.refusal.http_status)
            self.send_header("content-type", "application/json")
        else:
            body = b""
            self.send_response(307)
            self.send_header("location", f"http://{front.leader}{self.path}")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = _answer

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), datanodes=3, port=0) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def front(cluster: LocalCluster) -> Iterator[Front]:
    with Front(cluster.address.netloc) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def hadoop(cluster: LocalCluster, front: Front, stock_gateway: Any) -> Iterator[Hadoop]:
    """Yield a client with three addresses: a dead one, that of a front, and that of the coordinator."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        addresses = f"127.0.0.1:{taken.getsockname()[1]},{front.address},{cluster.address.netloc}"
        told = as_dict(settings(addresses, spark_version="4.3"))
        hadoop_settings = {
            key.removeprefix("spark.hadoop."): value
            for key, value in told.items()
            if key.startswith("spark.hadoop.")
        }
        with running_hadoop(stock_gateway, "webhdfs://peacefs", hadoop_settings) as hadoop:
            yield hadoop


def test_stock_client_finds_the_coordinator_that_leads_behind_a_dead_one_and_a_standby(
    hadoop: Hadoop, front: Front
) -> None:
    front.refusal = Standby("this coordinator stands by")
    data = random.Random(1).randbytes(3 * MIB)
    hadoop.write("/found/file", data)
    hadoop.rename("/found/file", "/found/moved")
    assert hadoop.read("/found/moved") == data
    assert hadoop.names("/found") == ["moved"]
    assert front.requests > 0
