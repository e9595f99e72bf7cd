"""Calls over Hadoop's RPC to a real coordinator: answers, refusals by Java's names, repetitions, and bad bytes."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.hadoop_rpc import (
    CLIENT_PROTOCOL,
    GREETING,
    HadoopRpc,
    RemoteError,
    address_of,
    call_header,
    context,
    frame,
    method_header,
    text_field,
)

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.hadoop import namenode_pb2 as pb
from peacefs.protocol.hadoop.hdfs_pb2 import FsPermissionProto

pytestmark = pytest.mark.cluster


@pytest.fixture
def address(shared_cluster: LocalCluster) -> tuple[str, int]:
    return address_of(shared_cluster.hdfs_uri)


@pytest.fixture
def rpc(address: tuple[str, int]) -> Iterator[HadoopRpc]:
    with HadoopRpc(*address, getpass.getuser()) as opened:
        yield opened


def mkdirs(rpc: HadoopRpc, path: str) -> bool:
    masked = FsPermissionProto(perm=0o755)
    made = pb.MkdirsRequestProto(src=path, masked=masked, createParent=True)
    return rpc.call("mkdirs", made, pb.MkdirsResponseProto).result


def delete(rpc: HadoopRpc, path: str, *, again: bool = False) -> bool:
    gone = pb.DeleteRequestProto(src=path, recursive=True)
    return rpc.call("delete", gone, pb.DeleteResponseProto, again=again).result


def test_call_that_is_sent_again_gets_its_first_answer(rpc: HadoopRpc, home: str) -> None:
    """HDFS's retry cache: by the ids of client and call, also over another connection."""
    assert mkdirs(rpc, f"{home}/d")
    assert delete(rpc, f"{home}/d")
    assert delete(rpc, f"{home}/d", again=True)
    rpc.connect()
    assert delete(rpc, f"{home}/d", again=True)
    assert not delete(rpc, f"{home}/d")


def test_calls_of_one_connection_are_answered_by_their_ids(rpc: HadoopRpc, home: str) -> None:
    sent = []
    for call in range(100, 150):
        asked = pb.GetFileInfoRequestProto(src=home if call % 2 else f"{home}/missing").SerializeToString()
        sent.append(frame(call_header(call, rpc.client), method_header("getFileInfo"), asked))
    rpc.send(b"".join(sent))
    answers = {header.callId: body for header, body in (rpc.heard() for _ in sent)}
    assert set(answers) == set(range(100, 150))
    for call, body in answers.items():
        assert pb.GetFileInfoResponseProto.FromString(body).HasField("fs") == bool(call % 2)


@pytest.mark.parametrize(
    ("method", "protocol", "version", "java_class"),
    [
        ("noSuchThing", CLIENT_PROTOCOL, 1, "org.apache.hadoop.ipc.RpcNoSuchMethodException"),
        ("getFileInfo", "com.example.Nothing", 1, "org.apache.hadoop.ipc.RpcNoSuchProtocolException"),
        ("getFileInfo", CLIENT_PROTOCOL, 2, "org.apache.hadoop.ipc.RPC$VersionMismatch"),
        ("createSymlink", CLIENT_PROTOCOL, 1, "java.lang.UnsupportedOperationException"),
    ],
)
def test_what_is_not_served_is_refused_by_name_and_the_connection_goes_on(
    rpc: HadoopRpc, home: str, method: str, protocol: str, version: int, java_class: str
) -> None:
    with pytest.raises(RemoteError) as refused:
        rpc.call(method, b"", pb.GetFileInfoResponseProto, protocol=protocol, version=version)
    assert refused.value.class_name == java_class
    assert "\n" not in refused.value.message
    assert mkdirs(rpc, f"{home}/still")


@pytest.mark.parametrize(
    ("method", "request_", "answer", "java_class"),
    [
        (
            "getBlockLocations",
            pb.GetBlockLocationsRequestProto(src="/nothing", offset=0, length=1),
            pb.GetBlockLocationsResponseProto,
            "java.io.FileNotFoundException",
        ),
        (
            "recoverLease",
            pb.RecoverLeaseRequestProto(src="/", clientName="c"),
            pb.RecoverLeaseResponseProto,
            "java.io.FileNotFoundException",
        ),
        (
            "addBlock",
            pb.AddBlockRequestProto(src="/nothing", clientName="c"),
            pb.AddBlockResponseProto,
            "java.io.FileNotFoundException",
        ),
    ],
)
def test_refusals_bear_the_names_of_hdfs(
    rpc: HadoopRpc, method: str, request_: object, answer: type, java_class: str
) -> None:
    with pytest.raises(RemoteError) as refused:
        rpc.call(method, request_, answer)  # type: ignore[arg-type]
    assert refused.value.class_name == java_class


@pytest.mark.parametrize("after", [b"9" * 5000, b"-1/a", b"x"])
def test_page_that_no_answer_names_is_refused(rpc: HadoopRpc, home: str, after: bytes) -> None:
    asked = pb.GetBatchedListingRequestProto(paths=[home], startAfter=after, needLocation=False)
    with pytest.raises(RemoteError, match="startAfter") as refused:
        rpc.call("getBatchedListing", asked, pb.GetBatchedListingResponseProto)
    assert refused.value.class_name == "java.lang.IllegalArgumentException"


def test_file_is_found_by_its_id_wherever_it_was_moved(rpc: HadoopRpc, home: str) -> None:
    """HDFS's path handles name files by their ids."""
    mkdirs(rpc, f"{home}/d/e")

    def status(path: str) -> pb.GetFileInfoResponseProto:
        return rpc.call("getFileInfo", pb.GetFileInfoRequestProto(src=path), pb.GetFileInfoResponseProto)

    number = status(f"{home}/d").fs.fileId
    inner = status(f"{home}/d/e").fs.fileId
    moved = pb.Rename2RequestProto(src=f"{home}/d", dst=f"{home}/moved", overwriteDest=False)
    rpc.call("rename2", moved, pb.Rename2ResponseProto)
    assert status(f"/.reserved/.inodes/{number}").fs.fileId == number
    assert status(f"/.reserved/.inodes/{number}/e").fs.fileId == inner
    for nothing in (number + 1_000_000, "x", "", "9" * 19, "9" * 30, f"{number}/e/f"):
        assert not status(f"/.reserved/.inodes/{nothing}").HasField("fs")


def test_nobody_acts_for_others_without_a_rule(address: tuple[str, int]) -> None:
    with HadoopRpc(*address, "alice", real_user="oozie") as rpc, pytest.raises(RemoteError) as refused:
        mkdirs(rpc, "/tmp/x")
    assert refused.value.class_name == "org.apache.hadoop.security.authorize.AuthorizationException"
    assert refused.value.message == "User: oozie is not allowed to impersonate alice"


def resident_bytes(pid: int) -> int:
    [line] = [each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def test_long_headers_of_calls_are_answered_and_not_kept(
    rpc: HadoopRpc, shared_cluster: LocalCluster, home: str
) -> None:
    asked = pb.GetFileInfoRequestProto(src=home).SerializeToString()
    count = 64
    before = resident_bytes(shared_cluster.coordinator.pid)
    for call in range(count):
        # A field that no version of Hadoop reads.
        named = method_header("getFileInfo") + text_field(99, f"{call:<{1 << 20}}")
        rpc.send(frame(call_header(call, rpc.client), named, asked))
        assert rpc.heard()[0].callId == call
    assert resident_bytes(shared_cluster.coordinator.pid) - before < (count << 20) // 2


def hung_up(address: tuple[str, int], sent: bytes) -> bytes:
    """Return what a server says to these bytes before it closes. Fails if it does not close."""
    with socket.create_connection(address, timeout=20.0) as connection:
        connection.sendall(sent)
        received = b""
        while piece := connection.recv(1 << 16):
            received += piece
    return received


@pytest.mark.parametrize(
    "sent",
    [
        b"hrpc\x07\x00\x00",
        GREETING + b"\x7f\xff\xff\xff",
        GREETING + frame(call_header(0, bytes(16)), method_header("getFileInfo"), text_field(1, "/")),
        GREETING + context("ann") + context("bob"),
        GREETING + context("ann") + frame(call_header(0, bytes(16)), method_header("getFileInfo"), b""),
        GREETING + context("ann") + frame(call_header(0, bytes(16)), b"\xff"),
        GREETING + context("no:user"),
        GREETING + frame(call_header(-33, b""), b"\x10\x02"),
        GREETING + frame(call_header(-7, b"")),
    ],
)
def test_bad_bytes_end_one_connection_with_one_line_in_the_log(
    shared_cluster: LocalCluster, address: tuple[str, int], rpc: HadoopRpc, home: str, sent: bytes
) -> None:
    log = shared_cluster.coordinator.log
    assert log is not None
    before = log.read_text().count("of a client of HDFS on")
    hung_up(address, sent)
    assert log.read_text().count("of a client of HDFS on") == before + 1
    assert mkdirs(rpc, f"{home}/others-go-on")


def test_browser_is_told_that_this_is_no_web_server(address: tuple[str, int]) -> None:
    assert hung_up(address, b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 404")
