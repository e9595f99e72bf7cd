"""The data port with all kinds of peers."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import socket
import struct
import threading
import time

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.long_runs import often

from peacefs.datanode.pipeline.listeners import DataListeners
from peacefs.datanode.pipeline.server import DataServer
from peacefs.protocol.errors import PeerError, PeerRefused, PeerTimeout, StartupError
from peacefs.protocol.frames import encode
from peacefs.protocol.handshake import Identity
from peacefs.protocol.limits import MIB, packet_bytes
from peacefs.protocol.messages import Failure, GetLayout, Hello, Packet, Proof, ReportAgain, WriteChunk
from peacefs.protocol.tokens import Signer
from peacefs.runtime import effects as fx
from peacefs.runtime.connection_handshakes import open_connection
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.connections import SocketConnection


def raw(node):
    return socket.create_connection(node.server.address, timeout=180)


def everything_received(sock):
    sock.shutdown(socket.SHUT_WR)
    received = b""
    try:
        while piece := sock.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


def framed(message, payload=b""):
    return encode(message, len(payload)) + payload


pieces_of_frames = st.one_of(
    st.binary(max_size=300),
    st.sampled_from(
        [
            framed(Hello(1, "test-cluster", "client", "x", b"nonce")),
            framed(Proof(b"")),
            framed(WriteChunk("token", 1, 2, b"1234"), b"data"),
            framed(Packet(0, b"")),
            b"GET / HTTP/1.1\r\n\r\n",
            struct.pack(">2sBBIIII", b"pf", 1, 0, 0, 1 << 31, 1 << 31, 0),
        ]
    ),
)


@settings(max_examples=often(24, 60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(pieces_of_frames, max_size=5), cut=st.integers(0, 400))
@pytest.mark.evidence("messages-lost")
def test_no_bytes_whatever_do_harm(cluster, caplog, pieces, cut):
    with raw(cluster.nodes[0]) as sock:
        data = b"".join(pieces)
        try:
            sock.sendall(data[: len(data) - cut] if cut < len(data) else data)
            everything_received(sock)
        except OSError:
            pass
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    cluster.write(b"it serves on")
    assert cluster.read() == b"it serves on"


def test_a_service_with_another_secret_is_told_and_turned_away(cluster):
    stranger = Identity("test-cluster", "datanode", "stranger", Signer(b"another secret"))
    with pytest.raises(
        PeerRefused,
        match="stranger does not know the secret of cluster test-cluster: give it the same --secret-file",
    ):
        open_connection(cluster.nodes[0].server.address, "n0", stranger)


def test_a_client_of_another_cluster_is_turned_away(cluster):
    stranger = Identity("another-cluster", "client", "stranger", None)
    with pytest.raises(PeerRefused, match="belongs to cluster"):
        open_connection(cluster.nodes[0].server.address, "n0", stranger)


@pytest.mark.parametrize("request_", [GetLayout("token"), ReportAgain(), Packet(0, b"")])
def test_request_that_is_no_data_servers_is_refused_and_the_connection_closed(cluster, request_):
    connection = cluster.connect("n0")
    cluster.driver.run(fx.send(connection, request_, timeout_s=60.0))
    answer = cluster.answer(connection)
    assert isinstance(answer, Failure) and answer.code == "ProtocolViolation"
    with pytest.raises(PeerError):
        cluster.answer(connection)


@pytest.mark.evidence("messages-lost")
def test_a_damaged_frame_is_refused_and_the_connection_closed(make_cluster):
    cluster = make_cluster(nodes=1)
    connection = cluster.connect("n0")
    cluster.driver.run(fx.send(connection, Packet(0, b"x" * 100), timeout_s=60.0))
    assert isinstance(cluster.answer(connection), Failure)
    cluster.nodes[0].relay.flip_down_at = 300
    connection = cluster.connect("n0")
    cluster.driver.run(fx.send(connection, Packet(0, b"x" * 100), timeout_s=60.0))
    answer = cluster.answer(connection)
    assert isinstance(answer, Failure) and "damaged" in answer.message


def server_like(node, **options):
    me = Identity("test-cluster", "datanode", node.name, Signer(b"a secret of the tests"))
    server = DataServer(DataListeners("127.0.0.1", 0, me), node.driver, node.requests, **options)
    server.start()
    return server


def test_connections_beyond_the_limit_are_told_why_and_closed(cluster, until):
    server = server_like(cluster.nodes[0], connections_max=2)
    client = Identity("test-cluster", "client", "test", None)
    kept = [open_connection(server.address, "n0", client)[0] for _ in range(2)]
    until(lambda: not server._silent, "the server has heard the end of their hello, too")
    with pytest.raises(PeerRefused, match="2 data connections, its limit"):
        open_connection(server.address, "n0", client)
    kept.pop().close()

    def admitted():
        try:
            kept.append(open_connection(server.address, "n0", client)[0])
        except PeerRefused:
            return False
        return True

    until(admitted, "a connection that ends makes room for another")
    for connection in kept:
        connection.close()
    server.stop()


@pytest.mark.evidence("connection-churn")
def test_nothing_is_kept_of_connections_that_have_ended_however_long_they_might_have_been_silent(cluster, until):
    """Otherwise a client that connects and hangs up repeatedly would fill the memory."""

    def kept_closed():
        gc.collect()
        return sum(isinstance(each, SocketConnection) and each.is_closed for each in gc.get_objects())

    server = server_like(cluster.nodes[0])
    before = kept_closed()
    service = Identity("test-cluster", "datanode", "n1", Signer(b"a secret of the tests"))
    for me in (Identity("test-cluster", "client", "test", None), service):
        for _ in range(10):
            open_connection(server.address, "n0", me)[0].close()
    until(lambda: kept_closed() <= before + 1, "nothing is kept of them")
    server.stop()


def test_one_host_has_no_more_connections_of_clients_than_it_may_and_services_are_not_counted(cluster, until):
    server = server_like(cluster.nodes[0], per_address_max=2)
    client = Identity("test-cluster", "client", "test", None)
    kept = [open_connection(server.address, "n0", client)[0] for _ in range(2)]
    with pytest.raises(PeerRefused, match=r"127.0.0.1 has 2 connections here, its limit"):
        open_connection(server.address, "n0", client)
    service = Identity("test-cluster", "datanode", "n1", Signer(b"a secret of the tests"))
    open_connection(server.address, "n0", service)[0].close()
    kept.pop().close()

    def admitted():
        try:
            kept.append(open_connection(server.address, "n0", client)[0])
        except PeerRefused:
            return False
        return True

    until(admitted, "one that ends makes room for another")
    for connection in kept:
        connection.close()
    server.stop()


@pytest.mark.evidence("silent-connections")
def test_silent_connections_keep_nobody_out(cluster, until):
    server = server_like(cluster.nodes[0], connections_max=4)
    silent = [socket.create_connection(server.address, timeout=180) for _ in range(20)]
    client = Identity("test-cluster", "client", "test", None)
    kept = [open_connection(server.address, "n0", client)[0] for _ in range(4)]
    for sock in silent:
        assert sock.recv(1) == b""
        sock.close()
    until(lambda: not server._silent, "the server has heard the end of their hello, too")
    with pytest.raises(PeerRefused, match="4 data connections, its limit"):
        open_connection(server.address, "n0", client)
    for connection in kept:
        connection.close()
    server.stop()


@pytest.mark.evidence("announced-frame")
def test_a_stranger_costs_no_more_memory_than_a_hello(cluster):
    with raw(cluster.nodes[0]) as sock:
        sock.sendall(struct.pack(">2sBBIIII", b"pf", 1, 0, 0, MIB, 4 * MIB, 0))
        assert b"over the limit" in everything_received(sock)


def connected_pair():
    """Return a connection after its handshake, and the socket at its other end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname(), timeout=180)
        ours, _address = listener.accept()
    connection = SocketConnection(ours, "the test")
    connection.greeted()
    return connection, theirs


@pytest.mark.evidence("announced-frame")
def test_the_buffer_of_a_connection_grows_with_what_comes_and_not_with_what_was_announced():
    connection, theirs = connected_pair()
    sent = framed(Packet(0, b"sums"), bytes(4 * MIB))
    theirs.sendall(sent[: 100 * 1024])
    with pytest.raises(PeerTimeout):
        connection.receive(timeout_s=0.2)
    assert len(connection._buffer) <= 256 * 1024
    theirs.close()
    connection.close()


def test_a_long_frame_that_comes_in_pieces_is_whole():
    connection, theirs = connected_pair()
    data = os.urandom(3 * MIB + 7)
    sending = threading.Thread(target=lambda: theirs.sendall(framed(Packet(0, b"sums"), data)))
    sending.start()
    frame = connection.receive(timeout_s=10)
    assert frame.payload == data and frame.message.sums == b"sums"
    sending.join()
    theirs.close()
    connection.close()


@pytest.mark.evidence("everything-is-bounded", "trickling-request")
def test_a_drip_of_bytes_earns_no_more_time_for_a_frame():
    connection, theirs = connected_pair()
    stop = threading.Event()

    def drip():
        for byte in framed(Packet(0, b"sums"), bytes(2000)):
            if stop.wait(0.02):
                return
            theirs.sendall(bytes([byte]))

    dripping = threading.Thread(target=drip, daemon=True)
    dripping.start()
    began = time.monotonic()
    with pytest.raises(PeerTimeout, match="too slowly"):
        connection.receive(timeout_s=0.5)
    assert time.monotonic() - began < 30, "all of it takes 40 s"
    stop.set()
    dripping.join()
    theirs.close()
    connection.close()


@pytest.mark.evidence("client-stops-reading")
def test_a_peer_that_takes_a_few_bytes_now_and_then_is_left_at_the_deadline():
    connection, theirs = connected_pair()
    stop = threading.Event()

    def sip():
        # More than a segment each time, so that the window opens repeatedly.
        while not stop.wait(0.05):
            theirs.recv(100_000)

    sipping = threading.Thread(target=sip, daemon=True)
    sipping.start()

    def send_on():
        began = time.monotonic()
        while time.monotonic() - began < 20:
            connection.send(Packet(0, b""), bytes(4 * MIB), timeout_s=0.3)

    with pytest.raises(PeerTimeout):
        send_on()
    stop.set()
    sipping.join()
    theirs.close()
    connection.close()


def test_a_port_that_is_taken_is_a_startup_error(cluster):
    node = cluster.nodes[0]
    me = Identity("test-cluster", "datanode", "x", Signer(b"s"))
    with pytest.raises(StartupError, match=r"cannot listen on 127\.0\.0\.1"):
        DataListeners("127.0.0.1", node.server.address[1], me)


def test_it_stops_promptly_with_streams_under_way_and_ends_all_its_threads(make_cluster, until):
    cluster = make_cluster(hop_timeout_s=240.0)
    before = set(threading.enumerate())
    # One hop waits for its successor, one for its writer, and one connection is idle.
    cluster.nodes[1].relay.hold_down_after = packet_bytes // 2
    for nodes, last in ((["n0", "n1"], True), (["n0"], False)):
        connection = cluster.connect("n0")
        allocated = cluster.coordinator.allocated(nodes)
        cluster.send_first(connection, allocated, bytes(packet_bytes), last=last)
    cluster.connect("n0")
    until(lambda: cluster.nodes[0].requests.streams == 2, "both streams are under way")
    started = time.monotonic()
    cluster.nodes[0].pool.shut_down()
    cluster.nodes[0].server.stop()
    assert time.monotonic() - started < 60, "nobody was waited for until a deadline"
    left = [thread.name for thread in set(threading.enumerate()) - before]
    assert "data-n0" not in left
    assert cluster.nodes[0].is_quiet()
    with pytest.raises(OSError, match="refused"):
        raw(cluster.nodes[0])


def test_a_server_that_was_never_started_can_be_stopped(cluster):
    me = Identity("test-cluster", "datanode", "x", Signer(b"s"))
    listeners = DataListeners("127.0.0.1", 0, me)
    DataServer(listeners, cluster.nodes[0].driver, cluster.nodes[0].requests).stop()


def test_streams_are_counted_while_they_last(cluster, until):
    connection = cluster.connect("n0")
    data = os.urandom(packet_bytes)
    cluster.send_first(connection, cluster.coordinator.allocated(["n0"]), data, last=False)
    until(lambda: cluster.nodes[0].requests.streams == 1, "the stream is counted")
    cluster.driver.run(fx.close(connection))
    until(lambda: cluster.nodes[0].requests.streams == 0, "and is not when it has gone")


def test_a_bug_in_one_connection_is_logged_and_the_others_go_on(cluster, caplog, monkeypatch, until):
    def bug(chunk, version):
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(cluster.nodes[0].store, "stage", bug)
        connection = cluster.connect("n0")
        cluster.send_first(connection, cluster.coordinator.allocated(["n0"]), b"x", last=True)
        with pytest.raises(PeerError):
            cluster.answer(connection)
    until(lambda: any("bug" in record.message for record in caplog.records), "it is logged")
    cluster.write(b"still here")
    assert cluster.read() == b"still here"


def test_after_shut_down_a_pool_connects_no_more(cluster):
    pool = ConnectionPool(Identity("test-cluster", "client", "test", None))
    pool.shut_down()
    with pytest.raises(PeerError, match="stopping"):
        pool.connect(cluster.nodes[0].server.address, "n0")


def test_an_address_is_known_before_anything_is_served(cluster):
    host, port = cluster.nodes[0].server.address
    assert host == "127.0.0.1" and port > 0
    assert msgspec.structs.astuple(cluster.nodes[0].hop)[0] == "n0"


def test_server_hangs_up_on_its_writers_before_it_waits_for_the_hops_after_it(make_cluster):
    """The writer then sees its own datanode end, instead of blaming a later hop that lives."""
    node = make_cluster(nodes=1).coordinator.nodes["n0"]
    with raw(node) as writer:
        node.server.hang_up()
        # The stopping server may have begun a handshake; only its end is guaranteed.
        with contextlib.suppress(ConnectionResetError):
            while writer.recv(4096):
                pass
    with pytest.raises(ConnectionRefusedError):
        raw(node)
