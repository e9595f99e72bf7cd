"""Members that violate etcd's protocol: a call ends in time, and the error says what is wrong."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, PingAckReceived, RequestReceived, StreamEnded

from peacefs.coordinator.journal import grpc_connection
from peacefs.coordinator.journal.etcd import EtcdJournal
from peacefs.coordinator.journal.etcd_client import EtcdAccess
from peacefs.coordinator.journal.grpc_connection import BrokenExchange, GrpcConnection, GrpcRefusal
from peacefs.coordinator.journal.port import JournalUnsure


class Member:
    """A server whose script handles each client in turn."""

    def __init__(self, script: Callable[[socket.socket], None]) -> None:
        self._script = script
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                with client, suppress(OSError):
                    self._script(client)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()


class Talk:
    """The server's side of one call over HTTP/2."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._came: list[Event] = []
        self.http = H2Connection(H2Configuration(client_side=False))
        self.http.initiate_connection()
        self.send()
        self.stream = self._until(RequestReceived).stream_id
        self._until(StreamEnded)

    def send(self) -> None:
        self._client.sendall(self.http.data_to_send())

    def ping(self) -> None:
        """Wait until the client has read everything sent so far."""
        self.http.ping(b"are here")
        self.send()
        self._until(PingAckReceived)

    def begin_answer(self) -> None:
        self.http.send_headers(self.stream, [(":status", "200"), ("content-type", "application/grpc")])

    def refuse(self, status: str, said: str) -> None:
        """Refuse with trailers only."""
        headers = [(":status", "200"), ("content-type", "application/grpc")]
        self._end([*headers, ("grpc-status", status), ("grpc-message", said)])

    def end_answer(self) -> None:
        self._end([("grpc-status", "0")])

    def _end(self, headers: list[tuple[str, str]]) -> None:
        self.http.send_headers(self.stream, headers, end_stream=True)
        self.send()
        # The client closes the connection.
        while self._client.recv(65536):
            pass

    def _until(self, kind: type) -> object:
        while True:
            while self._came:
                event = self._came.pop(0)
                if isinstance(event, kind):
                    return event
            piece = self._client.recv(65536)
            if not piece:
                raise ConnectionError("the client has hung up")
            self._came += self.http.receive_data(piece)
            self.send()


@pytest.fixture
def member() -> Iterator[Callable[[Callable[[socket.socket], None]], str]]:
    """Start a member with a script; return its address."""
    started: list[Member] = []

    def start(script: Callable[[socket.socket], None]) -> str:
        started.append(Member(script))
        return started[-1].endpoint

    yield start
    for each in started:
        each.close()


class Clock:
    """The clock of the connection, which the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(grpc_connection, "time", clock)
    return clock


def call(endpoint: str) -> bytes:
    with closing(GrpcConnection(endpoint, None)) as connection:
        return connection.call("/a.Service/Call", b"asked")


def test_call_goes_on_while_its_answer_comes_slowly(member: Callable[..., str], clock: Clock) -> None:
    message = b"answered"

    def slowly(client: socket.socket) -> None:
        talk = Talk(client)
        talk.begin_answer()
        for byte in struct.pack(">BI", 0, len(message)) + message:
            talk.http.send_data(talk.stream, bytes([byte]))
            talk.ping()
            clock.now_s += 1.5
        talk.end_answer()

    assert call(member(slowly)) == message


def test_call_ends_when_a_member_sends_anything_but_its_answer(member: Callable[..., str], clock: Clock) -> None:
    pings = []

    def ping_for_ever(client: socket.socket) -> None:
        talk = Talk(client)
        while True:
            talk.ping()
            pings.append(1)
            clock.now_s += 0.5

    with pytest.raises(TimeoutError):
        call(member(ping_for_ever))
    assert len(pings) in (4, 5), "two seconds"


def test_call_goes_on_while_the_member_takes_it_slowly(member: Callable[..., str], clock: Clock) -> None:
    """The call's window is large, as in grpc-go; the connection's window opens piece by piece."""
    message, piece = bytes(400_000), 16_384

    def slowly(client: socket.socket) -> None:
        http = H2Connection(H2Configuration(client_side=False))
        http.initiate_connection()
        client.sendall(http.data_to_send())
        has_ended, stream, taken, window = False, 0, 0, 65_535
        while not has_ended:
            for event in http.receive_data(client.recv(65536)):
                if isinstance(event, RequestReceived):
                    stream = event.stream_id
                    http.increment_flow_control_window(10 * len(message), stream)
                elif isinstance(event, DataReceived):
                    taken += event.flow_controlled_length
                has_ended = has_ended or isinstance(event, StreamEnded)
            if taken == window and not has_ended:
                http.increment_flow_control_window(piece)
                window += piece
                clock.now_s += 1.5
            client.sendall(http.data_to_send())
        http.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc")])
        http.send_data(stream, struct.pack(">BI", 0, 4) + b"done")
        http.send_headers(stream, [("grpc-status", "0")], end_stream=True)
        client.sendall(http.data_to_send())
        while client.recv(65536):
            pass

    with closing(GrpcConnection(member(slowly), None)) as connection:
        assert connection.call("/a.Service/Call", message) == b"done"


def test_call_to_a_member_that_stops_says_so(member: Callable[..., str]) -> None:
    def stop(client: socket.socket) -> None:
        talk = Talk(client)
        talk.http.close_connection()
        talk.send()
        # Data after the frame that ends the stream.
        client.sendall(struct.pack(">I", 8)[1:] + bytes([6, 0]) + bytes(4) + b"12345678")
        while client.recv(65536):
            pass

    with pytest.raises(BrokenExchange, match="the member closes its connections"):
        call(member(stop))


def test_append_that_may_be_there_is_never_said_to_be_refused_for_room(member: Callable[..., str]) -> None:
    """The first answer is lost after the member has stored the entry; then the member has no space."""
    asked = []

    def full(client: socket.socket) -> None:
        talk = Talk(client)
        asked.append(1)
        if len(asked) > 1:
            talk.refuse("8", "etcdserver: mvcc: database space exceeded")

    with closing(EtcdJournal(EtcdAccess((member(full),)), "/here")) as journal, pytest.raises(JournalUnsure):
        journal.append(1, 1, b"entry")
    assert len(asked) == 2


def test_call_says_what_the_member_said(member: Callable[..., str]) -> None:
    with pytest.raises(GrpcRefusal, match=r"^etcdserver: 100% no, ü$"):
        call(member(lambda client: Talk(client).refuse("8", "etcdserver: 100%25 no, %C3%BC")))


def test_call_to_what_speaks_no_http_2_says_so(member: Callable[..., str]) -> None:
    def http_1(client: socket.socket) -> None:
        client.recv(65536)
        client.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        while client.recv(65536):
            pass

    endpoint = member(http_1)
    with (
        closing(EtcdJournal(EtcdAccess((endpoint,)), "/here")) as journal,
        pytest.raises(JournalUnsure, match=f"{endpoint}: no HTTP/2 is spoken there, as gRPC needs"),
    ):
        journal.identity()


def test_call_to_what_speaks_no_grpc_says_so(member: Callable[..., str]) -> None:
    def page(client: socket.socket) -> None:
        talk = Talk(client)
        talk.http.send_headers(talk.stream, [(":status", "404")], end_stream=True)
        talk.send()
        while client.recv(65536):
            pass

    with pytest.raises(BrokenExchange, match="HTTP status 404"):
        call(member(page))
