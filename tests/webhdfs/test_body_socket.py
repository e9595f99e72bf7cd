"""Response bodies that threads send: complete, in order, in short turns, and never after their turn."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.waiting import wait_until

from peacefs.client.local_cluster.trial_certificates import TrialAuthority
from peacefs.runtime.tls import TlsFiles, TlsIdentity
from peacefs.service import body_socket as module
from peacefs.service import http_server
from peacefs.service.body_socket import Turn, body_socket, direct_turn_bytes

MIB = 1 << 20
BODY = os.urandom(24 * MIB)
#: A small buffer, so that the response does not fit between the server and a client that does not read.
CLIENT_HOLDS = 64 * 1024


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield both ends of a connection with small buffers: the server's and the client's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, CLIENT_HOLDS)
        near = socket.create_connection(listener.getsockname())
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, CLIENT_HOLDS)
        far, _ = listener.accept()
        with near, far:
            yield near, far


def _taken(end: socket.socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count and (piece := end.recv(count - len(received))):
        received += piece
    return bytes(received)


# -- a turn --------------------------------------------------------------------------------------------------


def test_turn_keeps_what_the_client_does_not_take_in_time(ends):
    near, far = ends
    turn = Turn(near)
    assert not turn.send(BODY), "the client reads nothing, so there is no room for more"
    assert turn.rest is not None
    assert 0 < turn.sent < len(BODY)
    assert turn.taken == len(BODY)
    assert _taken(far, turn.sent) + bytes(turn.rest) == BODY


def test_turn_waits_for_a_client_no_longer_than_its_moment_in_all(ends, monkeypatch):
    monkeypatch.setattr(module, "direct_wait_s", 0.0)
    turn = Turn(ends[0])
    assert not turn.send(BODY)
    assert turn.rest is not None


def test_turn_is_over_when_it_has_sent_its_share(ends):
    near, far = ends
    reading = threading.Thread(target=_taken, args=(far, 2 * direct_turn_bytes))
    reading.start()
    turn, pieces = Turn(near), 0
    while turn.send(bytes(64 * 1024)):
        pieces += 1
    assert turn.sent <= direct_turn_bytes
    near.shutdown(socket.SHUT_WR)
    reading.join()


def test_turn_that_was_ended_sends_nothing_and_keeps_nothing(ends):
    near, far = ends
    turn = Turn(near)
    assert turn.send(b"before")
    assert turn.end() == 6
    assert not turn.send(b"after")
    assert (turn.taken, turn.rest) == (6, None)
    near.shutdown(socket.SHUT_WR)
    assert _taken(far, 100) == b"before"


def test_turn_that_is_ended_while_it_waits_for_the_client_has_no_rest(ends, monkeypatch):
    monkeypatch.setattr(module, "direct_wait_s", 60.0)
    near, far = ends
    turn = Turn(near)
    sending = threading.Thread(target=turn.send, args=(BODY,))
    sending.start()
    wait_until(lambda: turn.sent > 0, "it has begun")
    sent = turn.end()
    assert len(_taken(far, sent)) == sent
    sending.join()
    assert (turn.taken, turn.rest) == (sent, None), "what was not sent is for somebody else"


def test_turn_says_that_its_client_has_gone(ends):
    near, far = ends
    far.close()
    turn = Turn(near)
    while turn.send(b"x" * 1000):
        pass
    assert turn.is_client_gone


# -- an answer -----------------------------------------------------------------------------------------------


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Respond with BODY: the first third from the loop, then from threads, and from the loop what they leave."""
    client, third = body_socket(scope), len(BODY) // 3
    headers = [(b"content-length", b"%d" % len(BODY)), (b"x-by-threads", b"%d" % (client is not None))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if client is None:
        await send({"type": "http.response.body", "body": BODY})
        return
    at, rest = third, memoryview(BODY)[:third]
    while at < len(BODY):
        await send({"type": "http.response.body", "body": rest, "more_body": True})
        turn = await client.turn()
        if turn is None:
            break
        await asyncio.to_thread(turn.send, memoryview(BODY)[at : at + 5 * MIB])
        client.account(turn.end())
        at, rest = at + turn.taken, turn.rest or memoryview(b"")
    else:
        await send({"type": "http.response.body", "body": rest})
    client.close()


@pytest.fixture(scope="module")
def served(serve: Any) -> Iterator[Any]:
    with serve(lambda: application) as served:
        yield served


def test_body_from_loop_and_threads_is_whole_and_in_order(served):
    for _ in range(3):
        assert served.request("GET", "/").body == BODY


def test_connection_is_good_for_the_next_request_after_a_body_from_threads(served):
    with served.connect() as wire, wire.makefile("rb") as answers:
        for _ in range(2):
            wire.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            assert answers.readline().startswith(b"HTTP/1.1 200 ")
            while answers.readline().strip():
                pass
            assert answers.read(len(BODY)) == BODY


@pytest.mark.evidence("client-stops-reading")
def test_client_that_takes_nothing_of_a_body_from_threads_is_cut_off(served, monkeypatch):
    monkeypatch.setattr(http_server, "http_write_stall_timeout_s", 0.2)
    with served.connect() as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, CLIENT_HOLDS)
        wire.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        # This is more than the loop's third, so a thread is sending when the client stops reading.
        assert len(_taken(wire, len(BODY) // 2)) == len(BODY) // 2
        wait_until(lambda: served.connections() == 0, "the server hangs up")
        received = _taken(wire, len(BODY))
    assert len(received) < len(BODY) // 2, "it never looks whole"


def test_no_thread_sends_over_tls(serve, tmp_path):
    authority = TrialAuthority(tmp_path)
    identity = TlsIdentity(authority.issue(["127.0.0.1"]), "127.0.0.1")
    trusting = TlsIdentity(TlsFiles(ca=authority.ca)).connector_context()
    with (
        serve(lambda: application, identity) as served,
        trusting.wrap_socket(served.connect(), server_hostname="127.0.0.1") as wire,
        wire.makefile("rb") as answer,
    ):
        wire.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        received = answer.read()
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"x-by-threads: 0" in head
    assert body == BODY
