"""A host vanishes in the middle of a request: the server notices, but tolerates silent hosts that live."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.emulation.leftovers import own_name, remove_namespace
from peacefs.protocol.limits import tcp_keepalive_idle_s, write_token_lifetime_s
from peacefs.service.http_server import listen, tcp_keepalive_interval_s, tcp_keepalive_probes_max

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and iproute2"
)

_ROOT = Path(__file__).parents[2]
#: Reports the progress of each request body. Keep-alive probes begin after one second, not sixty.
_SERVER = """
import asyncio, sys
from peacefs.service import http_server
http_server.tcp_keepalive_idle_s = http_server.tcp_keepalive_interval_s = 1
http_server.tcp_keepalive_probes_max = 3
async def app(scope, receive, send):
    while True:
        event = await receive()
        print(scope["path"], event["type"], len(event.get("body", b"")), flush=True)
        if event["type"] == "http.disconnect":
            return
async def serve():
    listener = http_server.listen("0.0.0.0", 9864)
    print("ready", flush=True)
    await http_server.build_server(app).serve(sockets=[listener])
asyncio.run(serve())
"""
_CLIENT = """
import socket, sys
wire = socket.create_connection((sys.argv[1], 9864))
head = f"PUT /{sys.argv[2]} HTTP/1.1\\r\\nhost: {sys.argv[1]}\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n"
wire.sendall(head.encode() + b"4\\r\\nbody\\r\\n")
sys.stdin.read()
wire.sendall(b"1\\r\\n!\\r\\n")
sys.stdin.read()
"""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """Yield two hosts, as namespaces, with a cable between them: 10.79.0.1 and 10.79.0.2."""
    names = own_name("here"), own_name("there")
    try:
        for name in names:
            ip("netns", "add", name)
        ip("-n", names[0], "link", "add", "data", "type", "veth", "peer", "name", "data", "netns", names[1])
        for number, name in enumerate(names, 1):
            ip("-n", name, "address", "add", f"10.79.0.{number}/24", "dev", "data")
            ip("-n", name, "link", "set", "data", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    except subprocess.CalledProcessError as refused:
        pytest.skip(f"no network namespaces can be made: {refused.stderr!r}")
    finally:
        for name in names:
            remove_namespace(name)


@contextmanager
def running(host: str, program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process within the block."""
    with subprocess.Popen(
        ["ip", "netns", "exec", host, sys.executable, "-c", program, *arguments],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_host_that_vanishes_in_a_body_is_noticed_and_one_that_is_silent_is_not_cut_off(
    hosts: tuple[str, str],
) -> None:
    here, there = hosts
    with running(here, _SERVER) as server:
        assert server.stdout is not None

        def said() -> str:
            line: str = server.stdout.readline().strip()  # type: ignore[union-attr]
            return line

        assert said() == "ready"
        with running(here, _CLIENT, "127.0.0.1", "silent") as silent:
            assert said() == "/silent http.request 4"
            with running(there, _CLIENT, "10.79.0.1", "vanishes"):
                assert said() == "/vanishes http.request 4"
                # As after a power failure: nothing that it sends arrives any more.
                ip("-n", there, "link", "set", "data", "down")
                began_s = time.monotonic()
                assert said() == "/vanishes http.disconnect 0"
                print(f"noticed after {time.monotonic() - began_s:.1f} s")
            # A live host has been silent for longer, and continues.
            assert silent.stdin is not None
            silent.stdin.close()
            assert said() == "/silent http.request 1"


def test_host_that_vanishes_is_noticed_long_before_a_silent_body_is_given_up() -> None:
    noticed_s = tcp_keepalive_idle_s + tcp_keepalive_probes_max * tcp_keepalive_interval_s
    assert noticed_s <= 120 < write_token_lifetime_s
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            set_to = [accepted.getsockopt(socket.IPPROTO_TCP, option) for option in options]
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert set_to == [tcp_keepalive_idle_s, tcp_keepalive_interval_s, tcp_keepalive_probes_max]
