"""HTTP requests to the coordinator and everything that can go wrong; time and randomness are simulated."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from peacefs.client.control.addresses import CoordinatorAddress
from peacefs.client.control.http import CoordinatorHttp
from peacefs.client.control.retry import RetryPolicy
from peacefs.protocol.errors import (
    FileNotFound,
    NoDatanodes,
    PeacefsError,
    PeerRefused,
    PeerTimeout,
    PeerUnreachable,
    SafeMode,
    remote_exception,
)

Reaction = Callable[[httpx.Request], httpx.Response]


class Script:
    """A coordinator that reacts to each request with the next item of a script; the last item repeats."""

    def __init__(self, *reactions: Reaction) -> None:
        self._reactions = list(reactions)
        self.requests: list[httpx.Request] = []
        self.now = 0.0
        self.pauses: list[float] = []

    def react(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        reaction = self._reactions.pop(0) if len(self._reactions) > 1 else self._reactions[0]
        return reaction(request)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def connected(self) -> CoordinatorHttp:
        return CoordinatorHttp(
            CoordinatorAddress("coordinator.example", 9870),
            RetryPolicy(clock=lambda: self.now, sleep=self.sleep, rng=random.Random(1)),
            transport=httpx.MockTransport(self.react),
        )


def answers(body: bytes = b"{}", status: int = 200) -> Reaction:
    return lambda _request: httpx.Response(status, content=body)


def refuses(error: PeacefsError) -> Reaction:
    return answers(json.dumps(remote_exception(error)).encode(), error.http_status)


def fails(fault: type[httpx.TransportError]) -> Reaction:
    def react(request: httpx.Request) -> httpx.Response:
        raise fault("it broke", request=request)

    return react


def test_an_answer_comes_back_at_once() -> None:
    script = Script(answers(b"yes"))
    answer = script.connected().ask("GET", "/v1/status")
    assert answer == b"yes"
    assert script.pauses == []


def test_a_coordinator_that_was_never_there_is_reported_at_once_with_what_to_do() -> None:
    script = Script(fails(httpx.ConnectError))
    with pytest.raises(PeerUnreachable, match=r"no address is known for the host coordinator\.example"):
        script.connected().ask("GET", "/v1/status")
    assert len(script.requests) == 1


def test_a_coordinator_that_restarts_is_waited_for() -> None:
    script = Script(answers(), *[fails(httpx.ConnectError)] * 5, answers(b"back"))
    http = script.connected()
    http.ask("GET", "/v1/status")
    answer = http.ask("GET", "/v1/status")
    assert answer == b"back"


def test_coordinator_that_stays_away_is_not_waited_for_longer_than_the_timeout() -> None:
    script = Script(answers(), fails(httpx.ConnectError))
    http = script.connected()
    http.ask("GET", "/v1/status")
    with pytest.raises(PeerUnreachable):
        http.ask("GET", "/v1/status", retry_s=10)
    assert 5 < script.now <= 10


def test_the_pauses_grow_but_not_beyond_their_limit() -> None:
    script = Script(refuses(SafeMode("starting")))
    with pytest.raises(SafeMode):
        script.connected().ask("POST", "/v1/files/create", retry_s=30)
    assert script.pauses[0] < 0.3
    assert max(script.pauses) <= 2.0
    assert len(script.pauses) < 60


@pytest.mark.parametrize("fault", [SafeMode("starting"), NoDatanodes("none yet")])
def test_a_refusal_that_may_pass_is_met_with_another_try(fault: PeacefsError) -> None:
    script = Script(refuses(fault), refuses(fault), answers(b"now"))
    assert script.connected().ask("POST", "/v1/files/create") == b"now"


def test_a_refusal_that_stands_is_raised_as_it_was_meant() -> None:
    script = Script(refuses(FileNotFound("no /a")))
    with pytest.raises(FileNotFound, match="no /a"):
        script.connected().ask("GET", "/webhdfs/v1/a")
    assert len(script.requests) == 1


@pytest.mark.parametrize("fault", [httpx.ReadError, httpx.RemoteProtocolError, httpx.ReadTimeout])
def test_a_request_whose_answer_was_lost_is_asked_again(fault: type[httpx.TransportError]) -> None:
    script = Script(fails(fault), answers(b"again"))
    answer = script.connected().ask("PUT", "/webhdfs/v1/a")
    assert answer == b"again"
    assert len(script.requests) == 2


def test_a_coordinator_that_says_nothing_is_given_up_in_the_end() -> None:
    script = Script(fails(httpx.ReadTimeout))
    with pytest.raises(PeerTimeout, match="said nothing for 3 s"):
        script.connected().ask("GET", "/v1/status", retry_s=1, answer_timeout_s=3)


def test_server_that_hangs_up_and_has_never_answered_may_be_another_port() -> None:
    with pytest.raises(PeerUnreachable, match="port for clients"):
        Script(fails(httpx.RemoteProtocolError)).connected().ask("GET", "/v1/status", retry_s=1)
    known = Script(answers(), fails(httpx.RemoteProtocolError)).connected()
    known.ask("GET", "/v1/status")
    with pytest.raises(PeerUnreachable, match=r"broke: it broke$"):
        known.ask("GET", "/v1/status", retry_s=1)


@pytest.mark.parametrize("body", [b"<html>Not Found</html>", b"[]", b'{"detail": "Not Found"}', b"\xff"])
def test_some_other_web_server_is_told_from_a_coordinator(body: bytes) -> None:
    script = Script(answers(body, 404))
    with pytest.raises(PeerRefused, match="does not answer like a peacefs coordinator"):
        script.connected().ask("GET", "/v1/status")
    assert len(script.requests) == 1


class _Silent(BaseHTTPRequestHandler):
    """Answers, keeps the connection open, and notes when the client has closed it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def finish(self) -> None:
        super().finish()
        self.server.hung_up.release()  # type: ignore[attr-defined]

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Silent) as server:
        server.hung_up = threading.Semaphore(0)  # type: ignore[attr-defined]
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield server
        server.shutdown()
        serving.join()


def test_connections_that_nobody_uses_are_closed_by_time(server: ThreadingHTTPServer) -> None:
    http = CoordinatorHttp(CoordinatorAddress("127.0.0.1", server.server_port), idle_s_max=0.2)
    for _ in range(2):
        assert http.ask("GET", "/") == b"ok"
        assert server.hung_up.acquire(timeout=180), "nobody asks any more, and it is still open"  # type: ignore[attr-defined]
    http.close()
    with pytest.raises(RuntimeError, match="was closed"):
        http.ask("GET", "/")


def test_none_of_many_threads_closes_what_another_may_have_been_given(server: ThreadingHTTPServer) -> None:
    http = CoordinatorHttp(CoordinatorAddress("127.0.0.1", server.server_port))
    with ThreadPoolExecutor(24) as threads:
        answers = list(threads.map(lambda _: http.ask("GET", "/"), range(1500)))
    assert answers == [b"ok"] * 1500
    assert not server.hung_up.acquire(blocking=False), "all are kept while somebody asks"  # type: ignore[attr-defined]
    http.close()


def test_a_conversation_that_is_closed_hangs_up(server: ThreadingHTTPServer) -> None:
    http = CoordinatorHttp(CoordinatorAddress("127.0.0.1", server.server_port))
    assert http.ask("GET", "/") == b"ok"
    http.close()
    assert server.hung_up.acquire(timeout=180)  # type: ignore[attr-defined]
