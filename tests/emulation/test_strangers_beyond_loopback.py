"""Clients of HDFS on another host: one without a token gets nothing, one with a token gets what its user may."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.failover_cluster import Service
from support.waiting import wait_until

from benchmarks.emulation.leftovers import own_name, remove_namespace
from peacefs.client.control.token_administration import TokenAdministration
from peacefs.client.local_cluster.member_process import PEACEFS

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and iproute2"
    ),
]
_ROOT = Path(__file__).parents[2]
_HOST, _HTTP, _NAMES, _DATA = "10.79.1.1", 9870, 8020, 9867
_PROGRAM = """
import json, sys
sys.path[:0] = ["tests"]
from oracles.hdfs_transfer import CHECKSUM, Block, TransferClient, message
from support.hadoop_rpc import HadoopRpc, RemoteError
from peacefs.protocol.hadoop import datatransfer_pb2 as dt, namenode_pb2 as pb
host, names, data, identifier, password = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]
token = (bytes.fromhex(identifier), bytes.fromhex(password))
told = {}
def tell(what, act):
    try:
        told[what] = act()
    except (RemoteError, OSError) as refusal:
        told[what] = str(refusal)
def owner(rpc):
    with rpc:
        return rpc.call("getFileInfo", pb.GetFileInfoRequestProto(src="/"), pb.GetFileInfoResponseProto).fs.owner
tell("no token", lambda: owner(HadoopRpc(host, names, "root")))
tell("forged token", lambda: owner(HadoopRpc(host, names, "", token=(token[0], bytes(len(token[1]))))))
tell("token", lambda: bool(owner(HadoopRpc(host, names, "", token=token))))
block = Block(1, 1, "e30.e30", 1)
def asked(ask):
    with TransferClient(data, host) as client:
        answer = ask(client)
        return dt.Status.Name(answer[1][0])
tell("read", lambda: asked(lambda client: client.ask_to_read(block, 0, 1)))
tell("write", lambda: asked(lambda client: client.ask_to_write(block)))
def checksum(client):
    client.ask(CHECKSUM, message((1, block.header)))
    return client.message()
tell("checksum", lambda: asked(checksum))
def length():
    asked = dt.GetReplicaVisibleLengthRequestProto()
    asked.block.poolId, asked.block.blockId, asked.block.generationStamp = "BP-1", 1, 1
    with HadoopRpc(host, data, "root") as rpc:
        protocol = "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol"
        return rpc.call(
            "getReplicaVisibleLength", asked, dt.GetReplicaVisibleLengthResponseProto, protocol=protocol
        ).length
tell("length", length)
print(json.dumps(told))
"""


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """Yield two hosts, as namespaces, with a cable between them."""
    here, there = own_name("served"), own_name("stranger")
    try:
        for name in (here, there):
            _ip("netns", "add", name)
        _ip("-n", here, "link", "add", "data", "type", "veth", "peer", "name", "data", "netns", there)
        for number, name in enumerate((here, there), 1):
            _ip("-n", name, "address", "add", f"10.79.1.{number}/24", "dev", "data")
            _ip("-n", name, "link", "set", "data", "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield here, there
    except subprocess.CalledProcessError as refused:
        pytest.skip(f"no network namespaces can be made: {refused.stderr!r}")
    finally:
        for name in (here, there):
            remove_namespace(name)


def _on(host: str, *command: str) -> str:
    ran = subprocess.run(
        ["ip", "netns", "exec", host, *command], cwd=_ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def _fetched(host: str, bearer: str) -> tuple[str, str]:
    """Fetch a delegation token as docs/hdfs.md says; return its identifier and password in hexadecimal."""
    url = (
        f"http://{_HOST}:{_HTTP}/webhdfs/v1/?op=GETDELEGATIONTOKEN&renewer=alice&kind=HDFS_DELEGATION_TOKEN"
        f"&service={_HOST}:{_NAMES}"
    )
    answer = json.loads(_on(host, "curl", "-s", "-H", f"Authorization: Bearer {bearer}", url))
    text = answer["Token"]["urlString"]
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    identifier = raw[1 : 1 + raw[0]]
    rest = raw[1 + raw[0] :]
    return identifier.hex(), rest[1 : 1 + rest[0]].hex()


def test_stranger_on_another_host_gets_nothing_without_a_token(hosts: tuple[str, str], tmp_path: Path) -> None:
    here, there = hosts
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef" * 3)
    secret.chmod(0o600)
    common = (f"--host={_HOST}", f"--secret-file={secret}", "--no-tls")
    coordinator = Service(
        tmp_path / "coordinator.log",
        *("coordinator", f"--dir={tmp_path / 'c'}", f"--hdfs-port={_NAMES}", f"--port={_HTTP}", *common),
    )
    datanode = Service(
        tmp_path / "datanode.log",
        *("datanode", f"--dir={tmp_path / 'd'}", f"--coordinator={_HOST}:9820", f"--hdfs-port={_DATA}", *common),
    )
    try:
        for service in (coordinator, datanode):
            service.program = ("ip", "netns", "exec", here, *PEACEFS)
            service.start()
        status = ("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"http://{_HOST}:{_HTTP}/v1/status")
        wait_until(lambda: _answers(there, status) not in ("", "000"), "the coordinator answers")
        wait_until(
            lambda: _answers(there, (*status[:-1], f"http://{_HOST}:9864/")) not in ("", "000"),
            "so does the datanode",
        )
        with TokenAdministration(f"unix:{tmp_path / 'c'}") as administration:
            bearer = administration.create("alice", 3600).token
        identifier, password = _fetched(there, bearer)
        place = (_HOST, str(_NAMES), str(_DATA))
        told: dict[str, Any] = json.loads(_on(there, sys.executable, "-c", _PROGRAM, *place, identifier, password))
    finally:
        for service in (coordinator, datanode):
            service.kill()
    print(told, coordinator.log(), datanode.log())
    assert told.pop("token") is True
    assert "SIMPLE authentication is not enabled" in told.pop("no token")
    assert "AccessControlException" in told.pop("forged token")
    assert "clients of this machine alone" in told.pop("length")
    assert told == dict.fromkeys(("read", "write", "checksum"), "ERROR_ACCESS_TOKEN")
    assert "Traceback" not in coordinator.log() + datanode.log()


def _answers(host: str, command: tuple[str, ...]) -> str:
    ran = subprocess.run(["ip", "netns", "exec", host, *command], capture_output=True, text=True, check=False)
    return ran.stdout
