"""A request's id goes from the client through every process that serves it, and into answers."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.client.requests import request
from peacefs.protocol.errors import BadRequest, FileNotFound

pytestmark = pytest.mark.cluster
_DRAWN = re.compile("[0-9a-f]{32}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Yield a cluster whose processes log every request, as JSON."""
    directory = tmp_path_factory.mktemp("logs")
    with pytest.MonkeyPatch.context() as environment:
        for service in ("COORDINATOR", "DATANODE"):
            environment.setenv(f"PEACEFS_{service}_LOG_FORMAT", "json")
            environment.setenv(f"PEACEFS_{service}_LOG_LEVEL", "debug")
        options = [f"--audit-log={directory / 'audit.log'}"]
        with LocalCluster(directory / "cluster", datanodes=3, port=0, coordinator_options=options) as running:
            yield running


def _records(log: Path, id: str) -> list[dict[str, Any]]:
    whole, _newline, _begun = log.read_text().rpartition("\n")
    records = [json.loads(line) for line in whole.splitlines()]
    return [record for record in records if record.get("request") == id]


def _messages(cluster: LocalCluster, id: str) -> dict[str, list[str]]:
    """Return each process's log lines about a request."""
    found = {}
    for log in sorted((cluster.directory / "logs").glob("*.log")):
        found[log.stem] = [record["message"] for record in _records(log, id)]
    return {name: messages for name, messages in found.items() if messages}


def _wait_for_audit(cluster: LocalCluster, id: str, operations: set[str]) -> None:
    log = cluster.directory.parent / "audit.log"
    wait_until(lambda: operations <= {line["cmd"] for line in _records(log, id)}, f"{operations} are audited")


def test_request_is_followed_from_the_client_through_the_coordinator_and_three_datanodes(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "peacefs.client")
    with PeaceFileSystem(cluster.http_address) as files, request() as mine:
        assert _DRAWN.fullmatch(mine.id)
        files.write("/followed", os.urandom(3_000_000), replication=3)

    def is_told_of_everywhere() -> bool:
        found = _messages(cluster, mine.id)
        at_datanodes = [lines for name, lines in found.items() if name.startswith("datanode")]
        return len(at_datanodes) == 3 and all(
            any("WriteChunk" in line for line in lines) for lines in at_datanodes
        )

    wait_until(is_told_of_everywhere, "three datanodes tell of the write")
    [coordinator] = [
        lines for name, lines in _messages(cluster, mine.id).items() if name.startswith("coordinator")
    ]
    assert [line.split()[0] for line in coordinator if "CreateFile" in line or "CompleteFile" in line] == [
        "CreateFile",
        "CompleteFile",
    ]
    said_by_client = [record.getMessage() for record in caplog.records if mine.id in record.getMessage()]
    assert any("CreateFile" in line for line in said_by_client)
    _wait_for_audit(cluster, mine.id, {"CreateFile", "CompleteFile"})


def test_request_through_a_gateway_keeps_its_id_where_the_client_sends_it_once(cluster: LocalCluster) -> None:
    with httpx.Client(base_url=cluster.http_address, timeout=180) as http:
        first = http.put("/webhdfs/v1/nightly?op=CREATE&replication=3", headers={"X-Request-Id": "nightly-42"})
        assert first.status_code == 307 and first.headers["x-request-id"] == "nightly-42"
        # A stock client follows the redirect with only the URL.
        written = http.put(first.headers["location"], content=b"x" * 2_000_000)
    assert written.status_code == 201 and written.headers["x-request-id"] == "nightly-42"

    def is_told_of_everywhere() -> bool:
        found = _messages(cluster, "nightly-42")
        lines = [line for lines in found.values() for line in lines]
        return len(found) == 4 and {"CREATE", "PUT", "WriteChunk", "CompleteFile"} <= {
            line.split()[0] for line in lines
        }

    wait_until(is_told_of_everywhere, "gateway, coordinator and all hops tell of it")
    _wait_for_audit(cluster, "nightly-42", {"CREATE", "CompleteFile"})


@pytest.mark.parametrize(
    "hostile", ["x" * 65, "two words", "a\tb", '{"a":1}', "%0a", "-rf", "", "caf\xe9", "a" * 5000]
)
def test_request_with_a_hostile_id_gets_another(cluster: LocalCluster, hostile: str) -> None:
    datanode = f"http://127.0.0.1:{cluster.datanodes[0].readiness.http_port}"
    for service in (cluster.http_address, datanode):
        answer = httpx.get(
            f"{service}/webhdfs/v1/none?op=GETFILESTATUS", headers={b"X-Request-Id": hostile.encode("latin-1")}
        )
        assert _DRAWN.fullmatch(answer.headers["x-request-id"])
        assert answer.json()["RemoteException"]["requestId"] == answer.headers["x-request-id"]
    with pytest.raises(BadRequest):
        request(hostile)


def test_request_that_fails_says_its_id_in_every_answer(cluster: LocalCluster) -> None:
    with httpx.Client(base_url=cluster.http_address, headers={"X-Request-Id": "mine:1"}) as http:
        for path in ("/webhdfs/v1/none?op=GETFILESTATUS", "/v1/chunks/0-1", "/v1/nothing", "/v1/plan"):
            answer = http.get(path)
            assert answer.status_code >= 400 and answer.headers["x-request-id"] == "mine:1"
            assert answer.json()["RemoteException"]["requestId"] == "mine:1"
        assert http.get("/metrics").headers["x-request-id"] == "mine:1"
    with PeaceFileSystem(cluster.http_address) as files, request("mine:2"), pytest.raises(FileNotFound):
        files.read("/none")
    wait_until(lambda: _messages(cluster, "mine:2"), "the coordinator tells of the refusal")
    [lines] = _messages(cluster, "mine:2").values()
    assert any("OpenFile" in line and "refused" in line for line in lines)


def test_requests_that_come_together_keep_their_ids_apart(cluster: LocalCluster) -> None:
    import socket

    host, port = cluster.http_address.removeprefix("http://").split(":")
    asked = b"".join(
        b"GET /webhdfs/v1/none%d?op=GETFILESTATUS HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Request-Id: number-%d\r\n\r\n"
        % (n, n)
        for n in range(3)
    )
    with socket.create_connection((host, int(port)), timeout=180) as sock:
        sock.sendall(asked)
        come = b""
        while come.count(b"requestId") < 3 and (piece := sock.recv(65536)):
            come += piece
    ids = re.findall(rb"x-request-id: (\S+)", come)
    assert ids == [b"number-0", b"number-1", b"number-2"]
    assert re.findall(rb'"requestId":"(\S+?)"', come) == ids
    wait_until(lambda: all(_messages(cluster, f"number-{n}") for n in range(3)), "each is logged")
    for number in range(3):
        [lines] = _messages(cluster, f"number-{number}").values()
        assert all(f"none{number}" in line for line in lines)
