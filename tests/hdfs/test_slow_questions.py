"""Strangers that send Hadoop's RPC to a datanode's HDFS port, and never a whole call."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import pytest
from support.hadoop_rpc import GREETING

from peacefs.datanode.hdfs import replica_questions
from peacefs.datanode.hdfs.heartbeats import Heartbeats
from peacefs.datanode.hdfs.replica_questions import ReplicaQuestions
from peacefs.datanode.hdfs.transfer_server import TransferServer
from peacefs.datanode.hdfs.transfer_socket import TransferSocket
from peacefs.protocol.errors import BadRequest


def test_client_that_sends_a_call_byte_by_byte_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_questions, "begun_message_timeout_s", 0.5)
    ours, theirs = socket.socketpair()
    ended = threading.Event()

    def trickle() -> None:
        theirs.sendall(GREETING + (60_000).to_bytes(4, "big"))
        while not ended.wait(0.05):
            theirs.sendall(b"\x00")

    def requested() -> None:
        raise AssertionError("no call was whole")

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        begun_s = time.monotonic()
        with pytest.raises(BadRequest, match="too slowly"):
            ReplicaQuestions(None).serve(TransferSocket(ours, "a test"), requested)  # type: ignore[arg-type]
        assert time.monotonic() - begun_s < 5
    finally:
        ended.set()
        thread.join()
        ours.close()
        theirs.close()


class Questions(ReplicaQuestions):
    """Tells when it serves a connection."""

    def __init__(self) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self.serving = threading.Semaphore(0)

    def serve(self, socket: TransferSocket, *on_request: Callable[[], None]) -> None:
        self.serving.release()
        super().serve(socket, *on_request)


def test_client_that_only_greets_makes_room_for_another() -> None:
    questions = Questions()
    server = TransferServer("127.0.0.1", 0, None, Heartbeats(), questions, connections_max=1)  # type: ignore[arg-type]
    server.start()
    try:
        with socket.create_connection(server.address, timeout=5.0) as silent:
            silent.sendall(GREETING)
            assert questions.serving.acquire(timeout=5.0)
            with socket.create_connection(server.address, timeout=5.0) as other:
                assert silent.recv(1) == b""
                other.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert other.recv(8) == b"HTTP/1.1"
    finally:
        server.hang_up(5.0)
        server.stop()
