"""A coordinator with `--audit-log` logs every request, whatever interface it used."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

pytestmark = pytest.mark.cluster
_ME = getpass.getuser()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


def test_audit_log_names_who_asked_for_what_through_every_door(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    options = [f"--audit-log={path}"]
    with LocalCluster(tmp_path / "cluster", datanodes=1, port=0, coordinator_options=options) as cluster:
        with PeaceFileSystem(cluster.http_address) as files:
            files.write("/ours", b"x" * 3_000_000)
            assert files.read("/ours") == b"x" * 3_000_000
            files.rename("/ours", "/theirs\n{}")
        with httpx.Client(base_url=cluster.http_address, follow_redirects=True) as http:
            made = http.put(f"/webhdfs/v1/made?op=CREATE&user.name={_ME}&permission=600", content=b"12")
            assert made.status_code == 201, made.text
            assert http.get("/webhdfs/v1/made?op=OPEN&user.name=eve").status_code == 403
            assert http.get(f"/webhdfs/v1/made?op=OPEN&user.name={_ME}&requestid=r-7").content == b"12"
            assert http.get("/webhdfs/v1/none?op=GETFILESTATUS&user.name=eve").status_code == 404
            copy = {"source": "/made", "target": "/copied", "user": _ME}
            assert http.post("/v1/copies", json=copy).status_code == 200
            assert http.post("/v1/topology/reload?user=eve").status_code == 403
            assert http.post("/v1/files/create", content=b'{"path": "/\xff"}').status_code == 400
            assert http.get("/webhdfs/v1/?op=LISTSTATUS", headers={"host": "evil.example"}).status_code == 403
            assert http.get("/v1/status").status_code == 200
            wait_until(lambda: "LISTSTATUS" in path.read_text(), "the last line is missing")
            moved = path.rename(tmp_path / "audit.log.1")
            os.kill(cluster.coordinator.pid, signal.SIGHUP)
            wait_until(path.exists, "nothing is opened anew")
            assert http.get("/webhdfs/v1/?op=GETHOMEDIRECTORY").status_code == 200
            wait_until(lambda: "GETHOMEDIRECTORY" in path.read_text(), "the new file stays empty")
            metrics = http.get("/metrics").text
    told = lines(moved)
    by = {(each["proto"], each["cmd"], each["src"], each["outcome"]): each for each in told}
    for protocol, operation, source, outcome, user, auth, error in (
        ("rpc", "CreateFile", "/ours", "allowed", _ME, "simple", None),
        ("rpc", "CompleteFile", "/ours", "allowed", _ME, "token", None),
        ("rpc", "OpenFile", "/ours", "allowed", _ME, "simple", None),
        ("rpc", "RenamePath", "/ours", "allowed", _ME, "simple", None),
        ("webhdfs", "CREATE", "/made", "allowed", _ME, "simple", None),
        ("datanode", "CompleteFile", "/made", "allowed", _ME, "token", None),
        ("webhdfs", "OPEN", "/made", "denied", "eve", "simple", "AccessDenied"),
        ("webhdfs", "OPEN", "/made", "allowed", _ME, "simple", None),
        ("webhdfs", "GETFILESTATUS", "/none", "error", "eve", "simple", "FileNotFound"),
        ("rest", "POST /v1/copies", "/made", "allowed", _ME, "simple", None),
        ("rest", "POST /v1/topology/reload", None, "denied", "eve", "simple", "AccessDenied"),
        ("webhdfs", "LISTSTATUS", "/", "denied", None, "simple", "AccessDenied"),
    ):
        line = by[protocol, operation, source, outcome]
        assert (line["ugi"], line["auth"], line["error"]) == (user, auth, error)
        assert line["ip"] == "127.0.0.1" and line["ms"] >= 0
    assert by["rpc", "RenamePath", "/ours", "allowed"]["dst"] == "/theirs\n{}"
    assert by["webhdfs", "CREATE", "/made", "allowed"]["perm"] == "600"
    assert by["webhdfs", "OPEN", "/made", "allowed"]["id"] == "r-7"
    assert by["rest", "POST /v1/copies", "/made", "allowed"]["dst"] == "/copied"
    assert "/v1/status" not in moved.read_text()
    # Tokens are long; only the names above may be long here.
    assert not re.search(r"[A-Za-z0-9_-]{60,}", moved.read_text())
    assert [each["cmd"] for each in lines(path)] == ["GETHOMEDIRECTORY"]
    assert f"peacefs_audit_records_total {len(told) + 1}.0" in metrics
