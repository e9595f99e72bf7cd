"""A TLS connection with Python's `ssl` at its other end: records and frames need not start together."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from peacefs.client.local_cluster.trial_certificates import TrialAuthority
from peacefs.protocol.errors import PeerRefused, PeerTimeout, PeerUnreachable
from peacefs.protocol.frames import encode
from peacefs.protocol.handshake import Identity
from peacefs.protocol.limits import MIB, frame_ahead_bytes
from peacefs.protocol.messages import Packet
from peacefs.runtime import effects as fx
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.connections import SocketConnection
from peacefs.runtime.disk_files import DiskFile
from peacefs.runtime.reactor import Reactor
from peacefs.runtime.thread_driver import ThreadDriver
from peacefs.runtime.tls import TlsIdentity

PATIENCE_S = 120.0
Pair = tuple[SocketConnection, ssl.SSLSocket]


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsIdentity:
    authority = TrialAuthority(tmp_path_factory.mktemp("authority"))
    return TlsIdentity(authority.issue(["127.0.0.1"]), "127.0.0.1")


@pytest.fixture
def pair(tls: TlsIdentity) -> Iterator[Callable[[], Pair]]:
    """Yield connections after their handshake, each with the `ssl` socket at its other end."""
    with contextlib.ExitStack() as opened:

        def make() -> Pair:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                theirs = socket.create_connection(listener.getsockname(), timeout=PATIENCE_S)
                ours, _address = listener.accept()
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
            connection = SocketConnection(ours, "the test")
            opened.callback(connection.close)
            shaking = threading.Thread(target=connection.secure, args=(tls.server_context(),))
            shaking.start()
            other = tls.connector_context().wrap_socket(theirs, server_hostname="127.0.0.1")
            opened.callback(other.close)
            shaking.join()
            connection.greeted()
            return connection, other

        yield make


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    driver = ThreadDriver(ConnectionPool(Identity("", "client", "test", None)), lambda message, timeout_s: message)
    reactor = Reactor(driver, "test-reactor", workers_max=4)
    reactor.start()
    yield reactor
    reactor.stop()


def framed(data: bytes, offset: int = 0) -> bytes:
    return encode(Packet(offset, b""), len(data)) + data


def test_frames_of_one_record_all_reach_a_participant_of_the_reactor(pair, reactor):
    """After the first frame the socket is not readable: the other frames are already decrypted."""
    connection, other = pair()
    offsets: list[int] = []
    over = threading.Event()

    def take() -> fx.Steps[None]:
        for _ in range(12):
            frame = yield from fx.next_request(connection, timeout_s=PATIENCE_S)
            offsets.append(frame.message.offset)

    reactor.run(take(), lambda fault: over.set() if fault is None else None)
    for first in (0, 6):
        # Some of these are shorter than what is read ahead, and together they are longer.
        other.sendall(b"".join(framed(os.urandom(frame_ahead_bytes // 5), first + number) for number in range(6)))
    assert over.wait(PATIENCE_S), offsets
    assert offsets == list(range(12))


def test_frames_in_records_of_a_byte_each_reach_a_participant_of_the_reactor(pair, reactor):
    connection, other = pair()
    taken: list[bytes] = []
    over = threading.Event()

    def take() -> fx.Steps[None]:
        for _ in range(2):
            frame = yield from fx.next_request(connection, timeout_s=PATIENCE_S)
            taken.append(bytes(frame.payload))

    reactor.run(take(), lambda fault: over.set() if fault is None else None)
    for byte in framed(b"first") + framed(b"second"):
        other.sendall(bytes([byte]))
    assert over.wait(PATIENCE_S)
    assert taken == [b"first", b"second"]


def test_answers_that_the_peer_does_not_take_at_once_are_sent_when_it_does(pair, reactor):
    """The reactor sends what it can, and the encrypted rest later, in order."""
    connection, other = pair()
    over = threading.Event()
    answers = [os.urandom(200_000) for _ in range(5)]

    def answer() -> fx.Steps[None]:
        for data in answers:
            yield from fx.send(connection, Packet(0, b""), data, timeout_s=PATIENCE_S)

    reactor.run(answer(), lambda fault: over.set() if fault is None else None)
    assert not over.wait(0.2)
    expected = b"".join(map(framed, answers))
    received = b""
    while len(received) < len(expected):
        received += other.recv(65536)
    assert received == expected
    assert over.wait(PATIENCE_S)


@pytest.mark.parametrize("size", [0, 1, frame_ahead_bytes, 3 * MIB + 5])
def test_large_and_small_frames_come_whole_to_a_thread(pair, size):
    connection, other = pair()
    data = os.urandom(size)
    sending = threading.Thread(target=other.sendall, args=(framed(data) + framed(b"the next"),))
    sending.start()
    into = memoryview(bytearray(4 * MIB))
    assert bytes(connection.receive(PATIENCE_S, into).payload) == data
    assert bytes(connection.receive(PATIENCE_S).payload) == b"the next"
    sending.join()


def test_payload_in_pieces_is_taken_as_it_is_asked_for(pair):
    connection, other = pair()
    data = os.urandom(2 * MIB)
    sending = threading.Thread(target=other.sendall, args=(framed(data),))
    sending.start()
    frame = connection.receive(PATIENCE_S, payload_max=MIB)
    taken = bytes(frame.payload)
    assert frame.unread == MIB
    taken += bytes(connection.receive_more(frame.unread, PATIENCE_S, memoryview(bytearray(MIB))))
    assert taken == data
    sending.join()


def test_file_is_sent_as_the_payload_of_a_frame(pair, tmp_path):
    connection, other = pair()
    content = os.urandom(MIB + 77)
    (tmp_path / "chunk").write_bytes(content)
    descriptor = os.open(tmp_path / "chunk", os.O_RDONLY)
    file = DiskFile(descriptor)
    sending = threading.Thread(
        target=connection.send_file, args=(Packet(0, b""), file, 100, MIB - 100, PATIENCE_S)
    )
    sending.start()
    expected = framed(content[100:MIB])
    received = b""
    while len(received) < len(expected):
        received += other.recv(65536)
    sending.join()
    assert received == expected
    with pytest.raises(OSError, match="shorter"):
        connection.send_file(Packet(0, b""), file, len(content), 10, PATIENCE_S)
    os.close(descriptor)


def test_one_thread_sends_while_another_receives(tls):
    """This holds at both ends, and neither waits for the other to finish."""
    near, far = (SocketConnection(end, "the other end") for end in socket.socketpair())
    shaking = threading.Thread(target=near.secure, args=(tls.server_context(),))
    shaking.start()
    far.secure(tls.connector_context(), "127.0.0.1")
    shaking.join()
    payloads = {near: os.urandom(3 * MIB), far: os.urandom(3 * MIB)}
    received: dict[SocketConnection, bytes] = {}
    threads = []
    for connection, data in payloads.items():
        connection.greeted()
        threads.append(threading.Thread(target=connection.send, args=(Packet(0, b""), data, PATIENCE_S)))
        threads.append(threading.Thread(target=_receive_one, args=(connection, received)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert received == {near: payloads[far], far: payloads[near]}
    near.close()
    far.close()


def _receive_one(connection: SocketConnection, received: dict[SocketConnection, bytes]) -> None:
    received[connection] = bytes(connection.receive(PATIENCE_S).payload)


class TestSilence:
    def test_nothing_comes(self, pair):
        connection, _other = pair()
        began_s = time.monotonic()
        with pytest.raises(PeerTimeout, match="said nothing"):
            connection.receive(0.2)
        assert time.monotonic() - began_s > 0.1

    def test_peer_takes_nothing(self, pair):
        connection, _other = pair()
        with pytest.raises(PeerTimeout, match="took nothing"):
            connection.send(Packet(0, b""), bytes(4 * MIB), 0.2)

    def test_end_of_the_peer(self, pair):
        connection, other = pair()
        assert not connection.has_been_closed()
        other.shutdown(socket.SHUT_RDWR)
        with pytest.raises(PeerUnreachable, match="closed the connection"):
            connection.receive(PATIENCE_S)
        assert connection.has_been_closed()

    def test_frame_that_nobody_wanted_makes_an_idle_connection_useless(self, pair):
        connection, other = pair()
        other.sendall(framed(b"one") + framed(b"too many"))
        assert bytes(connection.receive(PATIENCE_S).payload) == b"one"
        assert connection.has_bytes_ahead
        assert connection.has_been_closed()

    def test_handshake_that_is_never_finished(self, tls, monkeypatch):
        monkeypatch.setattr("peacefs.runtime.connections.tls_handshake_timeout_s", 0.2)
        near, far = socket.socketpair()
        with far:
            connection = SocketConnection(near, "the test")
            try:
                far.sendall(b"\x16\x03\x01")
                with pytest.raises(PeerTimeout, match="did not finish the TLS handshake in time"):
                    connection.secure(tls.server_context())
            finally:
                connection.close()

    def test_bytes_that_were_changed_on_the_way(self, pair):
        connection, other = pair()
        raw = socket.socket(fileno=os.dup(other.fileno()))
        with raw:
            raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
        with pytest.raises((PeerUnreachable, PeerRefused), match="fails at TLS"):
            connection.receive(PATIENCE_S)
