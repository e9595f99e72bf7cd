"""Data over TLS: all guarantees of plain text, and secrecy."""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pipeline.relay import Relay

from peacefs.client.local_cluster.trial_certificates import TrialAuthority
from peacefs.protocol.errors import PeerRefused
from peacefs.protocol.handshake import Identity
from peacefs.protocol.limits import MIB, checksum_block_bytes, packet_bytes
from peacefs.runtime.connection_handshakes import open_connection
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.tls import TlsFiles, TlsIdentity

SIZES = [1, 1000, checksum_block_bytes, packet_bytes - 1, packet_bytes + 1, 3 * packet_bytes + 12345, 5 * MIB + 1]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> TrialAuthority:
    return TrialAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def cluster(make_cluster, authority):
    return make_cluster(authority=authority)


@pytest.fixture(scope="module")
def trusting(authority: TrialAuthority) -> TlsIdentity:
    return TlsIdentity(TlsFiles(ca=authority.ca))


def test_tls_carries_chunks_of_any_size_through_a_pipeline(cluster):
    for size in SIZES:
        data = os.urandom(size)
        completed, stats = cluster.write(data)
        assert (completed.length, stats.replicas) == (size, (3,))
        for node in cluster.nodes:
            assert cluster.read(layout=cluster.layout_on(node.name)) == data
        assert cluster.read(offset=size // 3, length=size // 2) == data[size // 3 : size // 3 + size // 2]


def test_tls_serves_many_small_chunks_at_once(cluster):
    pieces = [os.urandom(1 + 977 * number % 40_000) for number in range(60)]
    with ThreadPoolExecutor(8) as writers:
        for completed, _ in writers.map(cluster.write, pieces):
            assert completed.length
    assert sum(len(node.store.replicas()) for node in cluster.nodes) == 3 * len(pieces)


def test_tls_goes_on_after_a_node_that_dies_in_the_middle_of_a_chunk(cluster):
    data = os.urandom(6 * MIB)
    cluster.nodes[1].relay.cut_down_after = 3 * MIB
    completed, stats = cluster.write(data)
    assert completed.length == len(data)
    assert stats.failed_nodes
    assert cluster.read() == data


def test_tls_shows_an_eavesdropper_nothing_of_a_file(make_cluster, authority):
    """Record every byte between client and nodes, and compare it with the file."""
    data = b"".join(b"%08d: the balance of account 4711 is secret\n" % line for line in range(50_000))
    fragment = b"account 4711"
    for wanted_authority, is_seen in ((None, True), (authority, False)):
        cluster = make_cluster(authority=wanted_authority)
        for node in cluster.nodes:
            node.relay.record = bytearray()
        cluster.write(data)
        assert cluster.read() == data
        for node in cluster.nodes:
            recorded = node.relay.record
            assert recorded is not None and len(recorded) > len(data)
            assert (fragment in recorded) is is_seen
            assert (b"file-token" in recorded or b"test-cluster" in recorded) is is_seen


def test_tls_does_not_spare_who_changes_bytes_on_the_way(cluster):
    data = os.urandom(2 * MIB)
    cluster.nodes[0].relay.flip_down_at = MIB
    completed, stats = cluster.write(data)
    assert completed.length == len(data)
    assert stats.failed_nodes
    assert cluster.read() == data


def test_tls_idle_connections_are_used_again_and_closed_ones_noticed(cluster, trusting):
    node = cluster.nodes[0]
    now_s = 100.0
    pool = ConnectionPool(Identity("test-cluster", "client", "test", None), lambda: now_s, tls=trusting)
    try:
        first = pool.connect(node.address, "n0")
        assert first.channel and not first.has_been_closed()
        pool.release(first)
        now_s += 5
        assert pool.connect(node.address, "n0") is first
        pool.release(first)
        node.relay.die()
        node.relay.dead = False
        now_s += 5
        again = pool.connect(node.address, "n0")
        assert again is not first
        pool.close(again)
    finally:
        pool.close_all()


def test_channel_is_the_same_at_both_ends_and_empty_without_tls(cluster, trusting, make_cluster):
    client = Identity("test-cluster", "client", "test", None)
    connection, _peer = open_connection(cluster.nodes[0].address, "n0", client, trusting)
    assert connection.channel == cluster.tls.server_context().channel
    assert len(connection.channel) == 32
    connection.close()
    plain, _peer = open_connection(make_cluster().nodes[0].address, "n0", client)
    assert plain.channel == b""
    plain.close()


def test_channel_keeps_a_service_from_passing_on_what_is_meant_for_another(cluster, authority):
    """The attacker has the address and a certificate of the same CA, terminates TLS, and relays messages."""
    own = TlsIdentity(authority.issue(["127.0.0.1", "thief"]), "127.0.0.1")
    node = cluster.nodes[0]
    with socket.create_server(("127.0.0.1", 0)) as door:
        node.relay.target = door.getsockname()
        passed: list[bytes] = []

        def pass_on() -> None:
            near, _ = door.accept()
            far = socket.create_connection(node.server.address, timeout=120)
            with (
                own.server_context().wrap_socket(near, server_side=True) as victim,
                own.connector_context().wrap_socket(far, server_hostname="127.0.0.1") as meant,
            ):
                for source, sink in ((victim, meant), (meant, victim), (victim, meant)):
                    words = source.recv(65536)
                    passed.append(words)
                    if words:
                        sink.sendall(words)

        thief = threading.Thread(target=pass_on)
        thief.start()
        datanode = Identity("test-cluster", "datanode", "n1", cluster.signer)
        with pytest.raises(PeerRefused, match="does not know the secret"):
            open_connection(node.address, "n0", datanode, cluster.tls)
        thief.join()
    assert passed[0] and passed[1], "the handshake was under way"
    assert passed[2] == b"", "no proof was shown to the thief"


class TestRefusals:
    def test_service_without_a_certificate(self, cluster, trusting):
        datanode = Identity("test-cluster", "datanode", "n9", cluster.signer)
        with pytest.raises(PeerRefused, match="n9 shows no certificate, as services do: pass --tls-certificate"):
            open_connection(cluster.nodes[0].address, "n0", datanode, trusting)

    def test_plain_client_is_told_what_to_do(self, cluster):
        client = Identity("test-cluster", "client", "test", None)
        with pytest.raises(PeerRefused, match="this port speaks TLS: use https://"):
            open_connection(cluster.nodes[0].address, "n0", client)

    def test_tls_client_of_a_plain_port(self, make_cluster, trusting):
        client = Identity("test-cluster", "client", "test", None)
        with pytest.raises(PeerRefused, match="n0 does not speak TLS: use http://"):
            open_connection(make_cluster().nodes[0].address, "n0", client, trusting)

    def test_unknown_authority(self, cluster, tmp_path: Path):
        other = TlsIdentity(TlsFiles(ca=TrialAuthority(tmp_path / "other").ca))
        client = Identity("test-cluster", "client", "test", None)
        with pytest.raises(PeerRefused, match="n0 shows a certificate of a CA that is not trusted here"):
            open_connection(cluster.nodes[0].address, "n0", client, other)

    def test_host_that_the_certificate_is_not_for(self, cluster, trusting):
        relay = Relay("127.0.0.2")
        relay.target = cluster.nodes[0].server.address
        client = Identity("test-cluster", "client", "test", None)
        try:
            with pytest.raises(PeerRefused, match=r"n0 shows a certificate that is not for 127\.0\.0\.2"):
                open_connection(relay.address, "n0", client, trusting)
        finally:
            relay.stop()
