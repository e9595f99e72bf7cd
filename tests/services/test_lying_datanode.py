"""The attack that deleted a file's real replicas: three fake datanodes know the secret and hold nothing."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.credentials import Credential
from peacefs.protocol.errors import PeerError
from peacefs.protocol.handshake import COORDINATOR, Identity
from peacefs.protocol.limits import MIB
from peacefs.protocol.messages import (
    Heartbeat,
    HeartbeatAck,
    ProveReplicas,
    Register,
    Registered,
    Replica,
    ReplicaProof,
    ReplicasProven,
    ReportChunks,
    Usage,
)
from peacefs.protocol.tokens import Signer
from peacefs.runtime.connection_handshakes import open_connection
from peacefs.runtime.connections import SocketConnection
from peacefs.runtime.secret import read_secrets

_USAGE = Usage(1 << 50, 0, 1 << 50)


class Liar:
    """Claims the replicas that it is told to claim, and answers challenges with arbitrary proofs."""

    def __init__(self, cluster: LocalCluster, name: str, claims: list[Replica]) -> None:
        readiness = cluster.coordinator.readiness
        secrets = read_secrets(cluster.directory / "coordinator" / "cluster.secret")
        me = Identity("", "datanode", name, Signer(*secrets))
        self._connection: SocketConnection
        self._connection, peer = open_connection(
            (readiness.node_host, readiness.node_port), "the coordinator", me, role=COORDINATOR
        )
        credential = Credential.make()
        self._key = credential.public_key
        self._proof = credential.sign_registration(name, peer.transcript)
        self._name = name
        self._claims = claims
        self._over = threading.Event()
        self.challenged = 0
        self._thread = threading.Thread(target=self._live)
        self._thread.start()

    def _live(self) -> None:
        with contextlib.suppress(PeerError):
            shown = {"public_key": self._key, "proof": self._proof}
            self._send(Register(self._name, "127.0.0.1", 1, "127.0.0.1", 1, f"/{self._name}", _USAGE, **shown))
            self._receive_until(Registered)
            self._send(ReportChunks(self._claims, last=True))
            while not self._over.wait(0.2):
                self._send(Heartbeat(_USAGE, added=self._claims))
                self._receive_until(HeartbeatAck)

    def _send(self, message: object, tag: int = 0) -> None:
        self._connection.send(message, b"", 10.0, tag)  # type: ignore[arg-type]

    def _receive_until(self, kind: type) -> None:
        while not isinstance((frame := self._connection.receive(10.0)).message, kind):
            if isinstance(frame.message, ProveReplicas):
                self.challenged += len(frame.message.challenges)
                proofs = [
                    ReplicaProof(each.chunk, each.version, each.nonce[:16], each.nonce[:16])
                    for each in frame.message.challenges
                ]
                self._send(ReplicasProven(proofs), frame.tag)

    def close(self) -> None:
        self._over.set()
        self._connection.shut_down()
        self._thread.join()
        self._connection.close()


@contextlib.contextmanager
def liars(cluster: LocalCluster, claims: list[Replica]) -> Iterator[list[Liar]]:
    made = [Liar(cluster, f"liar-{number}", claims) for number in range(3)]
    try:
        yield made
    finally:
        for liar in made:
            liar.close()


@pytest.mark.evidence("liars-lose-nothing")
def test_three_that_claim_all_chunks_cause_no_replica_to_go(tmp_path: Path) -> None:
    contents = {f"/public/{number}": os.urandom(1000) for number in range(20)} | {"/large": os.urandom(3 * MIB)}
    with (
        LocalCluster(tmp_path / "c", datanodes=3, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        claims = []
        for path, data in contents.items():
            files.write(path, data)
            layout = files.channels.calls.open(path, files.user).layout
            claims += [Replica(chunk.chunk, chunk.version, chunk.length) for chunk in layout.chunks]
        with liars(cluster, claims) as lying:
            wait_until(lambda: all(liar.challenged >= len(claims) for liar in lying), "each has to show all of it")
            until_s = time.monotonic() + 3.0
            while time.monotonic() < until_s:
                files.cluster_status()
                time.sleep(0.2)
        for path, data in contents.items():
            assert files.read(path) == data
        real = [node for node in files.cluster_status()["datanodes"] if "liar" not in node["node"]]
        assert [node["replicas"] for node in real] == [len(claims)] * 3
