"""Limits of the HTTP server: silent, slow, oversized and malformed requests end the connection with an error."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import statistics
import time

import pytest
from support.waiting import wait_until

from peacefs.protocol.asgi import client_watch
from peacefs.protocol.errors import StartupError
from peacefs.protocol.webhdfs.answers import json_answer, send_answer
from peacefs.service import http_crowd, http_server
from peacefs.service.http_server import listen


async def application(scope, receive, send):
    """Respond with the length of the path. /body reads the body; /stream sends until it is stopped."""
    if scope["path"] == "/body":
        while (await receive()).get("more_body"):
            pass
    if scope["path"] == "/stream":
        async with client_watch(receive) as hung_up:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while not hung_up.done():
                await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})
                await asyncio.sleep(0)
        return
    await send_answer(scope, send, json_answer(len(scope["path"])))


@pytest.fixture(scope="module")
def served(serve):
    with pytest.MonkeyPatch.context() as quicker:
        quicker.setattr(http_server, "http_linger_s", 0.1)
        with serve(lambda: application) as served:
            yield served


def until_closed(wire: socket.socket) -> bytes:
    received = b""
    try:
        while piece := wire.recv(1 << 16):
            received += piece
    except ConnectionResetError:
        pass
    return received


def refusal(raw: bytes) -> tuple[int, str]:
    head, _, body = raw.partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head
    assert b"content-type" not in head
    return int(head.split()[1]), json.loads(body)["RemoteException"]["message"]


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HTTP/1.1\r\nhost: x\r\n", b"GET /sl"],
    ids=["nothing", "headers without an end", "half a request line"],
)
def test_a_client_that_does_not_get_to_the_point_is_cut_off(served, monkeypatch, sent):
    monkeypatch.setattr(http_server, "http_first_byte_timeout_s", 0.2)
    with served.connect() as wire:
        wire.sendall(sent)
        began = time.monotonic()
        assert until_closed(wire) == b""
        assert time.monotonic() - began < 50


@pytest.mark.evidence("trickling-request")
def test_a_drip_of_header_bytes_does_not_extend_the_deadline(served, monkeypatch):
    monkeypatch.setattr(http_server, "http_first_byte_timeout_s", 0.3)
    with served.connect() as wire:
        wire.sendall(b"GET / HTTP/1.1\r\nx: ")
        began = time.monotonic()
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            while time.monotonic() - began < 90:
                wire.sendall(b"y")
                time.sleep(0.02)
        assert time.monotonic() - began < 50


def test_a_connection_that_was_answered_outlives_the_first_byte_deadline(served, monkeypatch):
    """The JDK's pool keeps idle sockets for 5 s, others longer, so keep-alive has a separate timeout."""
    monkeypatch.setattr(http_server, "http_first_byte_timeout_s", 0.1)
    with served.connect() as wire:
        for _ in range(2):
            wire.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            assert wire.recv(65536).endswith(b"\r\n\r\n1")
            time.sleep(0.3)
        wire.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert wire.recv(65536).endswith(b"\r\n\r\n1")


def test_a_body_that_nobody_waits_for_has_a_deadline(served, monkeypatch):
    monkeypatch.setattr(http_server, "http_first_byte_timeout_s", 0.2)
    with served.connect() as wire:
        wire.sendall(b"PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n")
        assert wire.recv(65536).endswith(b"\r\n\r\n1")
        wire.sendall(b"half of it")
        assert until_closed(wire) == b""


def test_the_application_sets_the_pace_of_a_body_that_it_reads(served, monkeypatch):
    monkeypatch.setattr(http_server, "http_first_byte_timeout_s", 0.1)
    with served.connect() as wire:
        wire.sendall(b"PUT /body HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nab")
        time.sleep(0.4)
        wire.sendall(b"cd")
        assert wire.recv(65536).endswith(b"\r\n\r\n5")


@pytest.mark.evidence("client-stops-reading")
def test_a_client_that_takes_nothing_is_cut_off(served, monkeypatch):
    monkeypatch.setattr(http_server, "http_write_stall_timeout_s", 0.2)
    with served.connect() as wire:
        wire.sendall(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n")
        time.sleep(1)
        assert not until_closed(wire).endswith(b"0\r\n\r\n")


def test_a_url_up_to_the_limit_is_taken_and_one_byte_more_is_refused_in_words(served):
    longest = http_server.http_url_bytes_max
    assert served.request("GET", "/" + "a" * (longest - 1)).json == longest
    for size in (longest, 700_000):
        with served.connect() as wire:
            wire.sendall(b"GET /" + b"a" * size + b" HTTP/1.1\r\nhost: x\r\n\r\n")
            assert refusal(until_closed(wire)) == (414, "the URL is over 65535 bytes")


def test_endless_headers_are_refused_in_words(served):
    with served.connect() as wire:
        wire.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 300_000)
        assert refusal(until_closed(wire)) == (431, "the head of the request is over 131072 bytes")


def test_too_many_headers_are_refused_in_words_however_short_they_are(served):
    with served.connect() as wire:
        wire.sendall(b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 101 + b"\r\n")
        assert refusal(until_closed(wire)) == (431, "the request has more than 100 headers")
    with served.connect() as wire:
        wire.sendall(b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 100 + b"\r\n")
        assert wire.recv(65536).endswith(b"\r\n\r\n1")


def test_requests_that_follow_without_end_on_one_connection_close_it(served):
    ask_one = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
    with served.connect() as wire:
        wire.sendall(ask_one * http_server.http_pipelined_max)
        received = b""
        while received.count(b"HTTP/1.1 200 ") < http_server.http_pipelined_max:
            received += wire.recv(65536)
    with served.connect() as wire:
        wire.sendall(ask_one * 6000)
        assert until_closed(wire).count(b"HTTP/1.1 200 ") < 100


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"HELLO\r\n\r\n", "the request is malformed"),
        (b"\x16\x03\x01\x02\x00\x01", "this port speaks no TLS: use http://"),
        (b"GET / / HTTP/1.1\r\n\r\n", "the request is malformed"),
    ],
)
def test_bytes_that_are_not_http_are_refused_in_words(served, sent, why):
    with served.connect() as wire:
        wire.sendall(sent)
        status, message = refusal(until_closed(wire))
    assert status == 400
    assert message.startswith(why)


def test_a_request_line_in_raw_utf_8_is_taken_as_hadoops_client_sends_it(served):
    """The path is not percent-encoded. It comes in two segments, the second time on a used connection."""
    with served.connect() as wire:
        for _ in range(2):
            line = "GET /ü日 HTTP/1.1\r\nhost: x\r\n\r\n".encode()
            wire.sendall(line[:6])
            time.sleep(0.05)
            wire.sendall(line[6:])
            assert wire.recv(65536).endswith(b"\r\n\r\n3"), "a slash and two letters"


def test_a_refusal_never_lands_in_another_answer(served):
    with served.connect() as wire:
        wire.sendall(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\nnonsense\r\n\r\n")
        assert b"RemoteException" not in until_closed(wire)


@pytest.mark.evidence("silent-connections")
def test_connections_over_the_limit_close_the_longest_silent(served, monkeypatch):
    wait_until(lambda: served.connections() == 0, "connections are still there")
    monkeypatch.setattr(http_crowd, "http_connections_max", 3)
    with contextlib.ExitStack() as open_connections:
        answered, silent, in_a_head = (open_connections.enter_context(served.connect()) for _ in range(3))
        ask(answered)
        in_a_head.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(20):
            open_connections.enter_context(served.connect())
        for wire in (answered, silent, in_a_head):
            assert until_closed(wire) == b""
        assert served.request("GET", "/").json == 1
        assert served.connections() <= 4


def test_connection_that_is_being_answered_is_not_closed_for_a_new_one(served, monkeypatch):
    wait_until(lambda: served.connections() == 0, "connections are still there")
    monkeypatch.setattr(http_crowd, "http_connections_max", 2)
    with served.connect() as first, served.connect() as second:
        for wire in (first, second):
            wire.sendall(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n")
            assert wire.recv(1)
        with served.connect() as surplus:
            assert until_closed(surplus) == b""
        assert first.recv(1) and second.recv(1)
    wait_until(lambda: served.connections() == 0, "connections are still there")
    assert served.request("GET", "/").json == 1


def ask(wire: socket.socket) -> None:
    wire.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert wire.recv(65536).endswith(b"1")


class RecordingTransport:
    """Records the calls of a transport, including each write."""

    def __init__(self):
        self.writes = []
        self.close = self.is_closing = lambda: None

    def write(self, data):
        self.writes.append(data)

    def writelines(self, pieces):
        self.writes.append(b"".join(pieces))


def test_a_head_leaves_with_the_first_of_its_body_in_one_write():
    transport = RecordingTransport()
    answer = http_server.HeadWithBody(transport)
    answer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert transport.writes == [b"HTTP/1.1 100 Continue\r\n\r\n"], "nothing follows that it could wait for"
    answer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    for piece in (b"body", b" and more", b""):
        answer.write(piece)
    assert transport.writes[1:] == [b"HTTP/1.1 200 OK\r\n\r\nbody", b" and more", b""]


def test_a_body_is_put_together_once_and_one_piece_is_not_copied_at_all():
    body = http_server.BodyPieces()
    assert (len(body), bytes(body)) == (0, b"")
    piece = bytes(100)
    body += piece
    assert bytes(body) is piece
    body += b"more"
    assert (len(body), bytes(body)) == (104, piece + b"more")


def test_answers_come_without_delay(served):
    """Separate writes of head and body can delay each request by 40 ms."""
    took = []
    with served.connect() as wire:
        for _ in range(30):
            began = time.perf_counter()
            wire.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            assert wire.recv(65536).endswith(b"\r\n\r\n1")
            took.append(time.perf_counter() - began)
    assert statistics.median(took) < 0.02


def test_a_head_request_gets_the_head_alone(served):
    with served.connect() as wire:
        wire.sendall(b"HEAD / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        received = until_closed(wire)
    assert received.startswith(b"HTTP/1.1 200 OK\r\n") and b"\r\ncontent-length: 1\r\n" in received
    assert received.endswith(b"\r\n\r\n")


def test_expect_100_continue_is_answered_when_the_body_is_wanted(served):
    with served.connect() as wire:
        wire.sendall(b"PUT /body HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n")
        assert wire.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        wire.sendall(b"ab")
        assert wire.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_port_that_is_taken_says_so():
    with listen("127.0.0.1", 0) as taken, pytest.raises(StartupError, match="Address already in use"):
        listen("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(StartupError, match=r"cannot listen on no-such-host\.invalid"):
        listen("no-such-host.invalid", 0)


def test_a_client_whose_machine_is_gone_is_found_out():
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60


def test_server_that_nobody_asks_for_anything_is_not_woken_and_ends_when_it_is_told(serve, monkeypatch):
    looks = []

    async def look(server, count):
        looks.append(count)
        return False

    monkeypatch.setattr(http_server.HttpServer, "on_tick", look)
    with serve(lambda: application) as served:
        assert served.request("GET", "/four").status == 200
        time.sleep(0.5)  # uvicorn's tick runs ten times a second
    assert looks == [0]


def test_nothing_above_is_logged_as_a_fault(served, caplog):
    with caplog.at_level(logging.WARNING), served.connect() as wire:
        wire.sendall(b"HELLO\r\n\r\n")
        until_closed(wire)
    assert caplog.text == ""
