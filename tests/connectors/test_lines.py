"""Sources for demonstrations, with a real server of each kind."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from support.connector_rows import MemoryJournal, as_json, given_by, rows
from support.etcd import free_ports

from peacefs.dataflow.connectors import HttpSource, SocketSource
from peacefs.protocol.errors import InvalidQuery, QueryFailed, StartupError

_SCHEMA = {"user": "string", "at": "timestamp", "n": "long"}


def _served(data: bytes) -> int:
    """Serve bytes to one client of a TCP port, in pieces that cut lines, and close the connection."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listening, listening.accept()[0] as client:
            for at in range(0, len(data), 100):
                client.sendall(data[at : at + 100])

    threading.Thread(target=serve, daemon=True).start()
    return int(listening.getsockname()[1])


def test_socket_source_counts_what_it_has_given() -> None:
    """The next program goes on with the next number: rows without a checkpoint are lost, and none comes twice."""
    journal = MemoryJournal()
    for first in (1, 11):
        port = _served(b"\n".join(as_json(each) for each in rows(first, first + 9)))
        source = SocketSource("127.0.0.1", port, _SCHEMA, time="at")
        assert source.begin(journal) == first - 1
        assert given_by(source) == rows(first, first + 9)


def test_socket_source_refuses_what_is_no_row() -> None:
    source = SocketSource("127.0.0.1", _served(b"hello\n"), _SCHEMA, time="at")
    source.begin(None)
    with pytest.raises(QueryFailed, match=r"sends a line that is no row: .*'hello'"):
        list(source)
    (port,) = free_ports(1)
    with pytest.raises(StartupError, match=r"cannot be reached .* start what listens there"):
        SocketSource("127.0.0.1", port, _SCHEMA, time="at").begin(None)
    long = SocketSource("127.0.0.1", _served(b"x" * 1_100_000), _SCHEMA, time="at")
    long.begin(None)
    with pytest.raises(QueryFailed, match="a line of more than 1,048,576 bytes"):
        list(long)


class _Answers(BaseHTTPRequestHandler):
    """Answers each request with the next two rows."""

    asked = 0

    def do_GET(self) -> None:
        _Answers.asked += 1
        first = 2 * _Answers.asked - 1
        body = b"\n".join(as_json(each) for each in rows(first, first + 1))
        self.send_response(200 if self.path == "/new" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    _Answers.asked = 0
    with HTTPServer(("127.0.0.1", 0), _Answers) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


def test_http_source_requests_again_and_again(server: str) -> None:
    source = HttpSource(f"{server}/new", _SCHEMA, time="at", every_s=0.01)
    assert source.begin(None) == 0
    found: list[object] = []
    for each in source:
        found += each.to_pylist()
        if len(found) >= 6:
            break
    assert found == rows(1, 6)
    missing = HttpSource(f"{server}/absent", _SCHEMA, time="at")
    with pytest.raises(QueryFailed, match=r"does not answer with rows: .*404"):
        next(iter(missing))
    with pytest.raises(InvalidQuery, match="no address of HTTP"):
        HttpSource("ftp://localhost", _SCHEMA, time="at")
