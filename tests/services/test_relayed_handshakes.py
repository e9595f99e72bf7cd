"""An attacker to whom a service connects relays its handshake to another service, under chosen names."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from support.waiting import PATIENCE_S, wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.frames import FrameReader, encode
from peacefs.protocol.messages import Challenge, Failure, Hello, Message, Proof, Register, Usage

pytestmark = pytest.mark.cluster
_PATIENCE_S = 120.0


class Attacker:
    """Relays handshakes to the coordinator, with changes of its choice.

    If the coordinator accepts a handshake, it registers a datanode of its own.
    """

    def __init__(self, coordinator: tuple[str, int], name: str) -> None:
        self._coordinator = coordinator
        self._name = name
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self.heard: list[Message] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                victim = self._listener.accept()[0]
                with victim, socket.create_connection(self._coordinator) as coordinator:
                    victim.settimeout(_PATIENCE_S)
                    coordinator.settimeout(_PATIENCE_S)
                    self._pass_on(victim, coordinator)

    def _pass_on(self, victim: socket.socket, coordinator: socket.socket) -> None:
        hello = _received(victim)
        assert isinstance(hello, Hello)
        name = self._name or hello.name
        coordinator.sendall(encode(msgspec.structs.replace(hello, name=name)))
        challenge = _received(coordinator)
        self._note(challenge)
        if challenge is None:
            return
        victim.sendall(encode(challenge))
        proof = _received(victim)
        self._note(proof)
        if not isinstance(proof, Proof):
            return
        coordinator.sendall(encode(proof))
        usage = Usage(1 << 40, 0, 1 << 40)
        coordinator.sendall(encode(Register(name, "127.0.0.1", 1, "127.0.0.1", 1, "/rack-1", usage)))
        for _ in range(2):
            self._note(_received(coordinator))

    def _note(self, message: Message | None) -> None:
        if message is not None:
            self.heard.append(message)

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()


def _received(sock: socket.socket) -> Message | None:
    reader = FrameReader()
    with contextlib.suppress(OSError):
        while data := sock.recv(1):
            if frames := reader.feed(data):
                return frames[0].message
    return None


@contextlib.contextmanager
def datanode_of(cluster: LocalCluster, directory: Path, coordinator: tuple[str, int]) -> Iterator[None]:
    """Start a datanode that takes `coordinator` for its coordinator, as after a forged name lookup."""
    process = subprocess.Popen(
        [
            *(
                sys.executable,
                "-P",
                "-m",
                "peacefs",
                "datanode",
                f"--dir={directory}",
                "--port=0",
                "--data-port=0",
            ),
            f"--coordinator={coordinator[0]}:{coordinator[1]}",
            f"--secret-file={cluster.directory / 'coordinator' / 'cluster.secret'}",
        ],
        stderr=subprocess.DEVNULL,
        env={**os.environ},
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)


@pytest.mark.parametrize("name", ["dn-of-the-attacker", ""], ids=["under another name", "as it is"])
@pytest.mark.evidence("handshake-relayed")
def test_a_handshake_that_is_passed_on_to_the_coordinator_makes_nobody_a_datanode(
    tmp_path: Path, name: str
) -> None:
    with (
        LocalCluster(tmp_path / "cluster", datanodes=1, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        names = cluster.coordinator.readiness
        attacker = Attacker((names.node_host, names.node_port), name)
        try:
            with datanode_of(cluster, tmp_path / "misled", attacker.address):
                wait_until(lambda: len(attacker.heard) > 0, "the coordinator has answered", timeout_s=_PATIENCE_S)
                wait_until(
                    lambda: isinstance(attacker.heard[-1], Failure) or len(attacker.heard) > 3,
                    "it is decided",
                    timeout_s=_PATIENCE_S,
                )
            assert len(files.cluster_status()["datanodes"]) == 1
            assert not any(isinstance(message, Challenge | Proof) for message in attacker.heard)
            assert "is not an address of it" in str(attacker.heard[0])
        finally:
            attacker.stop()
