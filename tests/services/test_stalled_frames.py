"""Clients that begin large frames and stall: their memory and time are limited, and others are served."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from crc32c import crc32c
from support.spoken_link import told_by

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.coordinator.rpc.client_session import client_frame_bytes_max
from peacefs.protocol.frames import FrameReader, encode
from peacefs.protocol.handshake import Identity, connecting
from peacefs.protocol.limits import KIB, MIB, begun_frame_timeout_s, begun_frames_bytes_max
from peacefs.protocol.messages import Failure, Message, Target, Welcome
from peacefs.runtime.connection_handshakes import client_data_frame_bytes_max

pytestmark = pytest.mark.cluster
#: A process also needs memory for its allocator and for each connection, which may have a thread.
_BESIDES_BYTES = 40 * MIB
_CONNECTION_BYTES = 160 * KIB


class Stalled:
    """A client that has completed its handshake, and sends arbitrary bytes."""

    def __init__(self, address: tuple[str, int], role: str, name: str) -> None:
        self.socket = socket.create_connection(address, timeout=30)
        self._reader = FrameReader()
        talk = connecting(Identity("", "client", "stalled", None), b"n" * 16, target=Target(role, name, "x", "x"))
        self.socket.sendall(encode(next(talk)))
        self.socket.sendall(encode(told_by(talk, self.received()).last_word))
        assert isinstance(self.received(), Welcome)

    def received(self) -> Message:
        while True:
            data = self.socket.recv(65536)
            assert data, "it has hung up without a word"
            if frames := self._reader.feed(data):
                return frames[0].message

    def begin(self, message_bytes: int, payload_bytes: int, less: int) -> None:
        """Announce a frame and send part of it, as far as the other side accepts it."""
        prefix = struct.pack(">2sBBIII", b"pf", 1, 0, 0, message_bytes, payload_bytes)
        with contextlib.suppress(OSError):
            self.socket.sendall(prefix + struct.pack(">I", crc32c(prefix)))
            self.socket.sendall(b"\xc0" * (message_bytes + payload_bytes - less))

    def drip(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.send(b"x")

    def has_ended(self) -> bool:
        with contextlib.suppress(OSError):
            while select.select([self.socket], [], [], 0)[0]:
                if not self.socket.recv(65536):
                    return True
            return False
        return True


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("a process without memory")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("stalled") / "cluster", datanodes=1, port=0) as cluster:
        yield cluster


@pytest.fixture
def files(cluster: LocalCluster) -> Iterator[PeaceFileSystem]:
    with PeaceFileSystem(cluster.http_address) as files:
        yield files


def attack(
    cluster: LocalCluster, port: str, count: int, message_bytes: int, payload_bytes: int
) -> tuple[list[Stalled], int, int]:
    """Open connections that stall 15 bytes before their frame's end; return the maximum memory that they cost."""
    member = cluster.coordinator if port == "http" else cluster.datanodes[0]
    ready = member.readiness
    if port == "http":
        whom = ("127.0.0.1", ready.http_port), "coordinator", "coordinator"
    else:
        whom = ("127.0.0.1", ready.data_port), "datanode", ready.node
    before = resident_bytes(member.pid)
    stalled, most = [], 0
    for number in range(count):
        stalled.append(Stalled(*whom))
        stalled[-1].begin(message_bytes, payload_bytes, 15)
        if number % 10 == 9:
            most = max(most, resident_bytes(member.pid) - before)
    return stalled, most, before


def wait_until_ended(stalled: list[Stalled]) -> float:
    """Send a byte now and then on each connection; return how long the last connection survives."""
    began_s = time.monotonic()
    while left := [each for each in stalled if not each.has_ended()]:
        assert time.monotonic() - began_s < 4 * begun_frame_timeout_s, f"{len(left)} go on"
        for each in left:
            each.drip()
        time.sleep(0.5)
    return time.monotonic() - began_s


@pytest.mark.parametrize(
    ("port", "count", "message_bytes", "payload_bytes"),
    [
        ("http", 150, client_frame_bytes_max, 0),
        ("data", 600, 1000, client_data_frame_bytes_max - 1000),
    ],
)
@pytest.mark.evidence("unfinished-frames")
def test_frames_that_clients_do_not_end_hold_no_more_than_their_budget_and_not_for_long(
    cluster, files, port: str, count: int, message_bytes: int, payload_bytes: int
) -> None:
    assert count * (message_bytes + payload_bytes) > begun_frames_bytes_max, "else nothing is tested"
    stalled, most, _before = attack(cluster, port, count, message_bytes, payload_bytes)
    try:
        print(f"{port}: {most / MIB:.0f} MiB more")
        assert most < begun_frames_bytes_max + _BESIDES_BYTES + count * _CONNECTION_BYTES
        files.write(f"/meanwhile-{port}", b"served", overwrite=True, replication=1)
        assert files.read(f"/meanwhile-{port}") == b"served"
        print(f"{port}: the last ended after {wait_until_ended(stalled):.0f} s")
    finally:
        for each in stalled:
            each.socket.close()


@pytest.mark.parametrize(
    ("port", "limit"), [("http", client_frame_bytes_max), ("data", client_data_frame_bytes_max)]
)
@pytest.mark.evidence("unfinished-frames")
def test_a_frame_that_is_longer_than_clients_need_is_refused_when_it_is_announced(
    cluster, port: str, limit: int
) -> None:
    [stalled], _most, _before = attack(cluster, port, 1, limit - 1000, 0)
    another = attack(cluster, port, 1, limit, 1)[0][0]
    try:
        refusal = another.received()
        assert isinstance(refusal, Failure) and "over the limit" in refusal.message
        assert not stalled.has_ended()
    finally:
        stalled.socket.close()
        another.socket.close()
