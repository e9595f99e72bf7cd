"""Revoked rights end open reads within the time that the coordinator is configured with.

Nothing else ends a read, however slow it is. Tested on a real cluster, for every way to read.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
import pytest
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import AccessDenied
from peacefs.protocol.limits import MIB

LIFETIME_S = 1.0
SMALL, LARGE = b"what is in the file", os.urandom(24 * MIB)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    options = ("--recheck-reads", str(LIFETIME_S))
    directory: Path = tmp_path_factory.mktemp("rechecking")
    with LocalCluster(directory, datanodes=2, port=0, coordinator_options=options) as cluster:
        yield cluster.http_address


@pytest.fixture
def alice(address: str) -> Iterator[PeaceFileSystem]:
    with PeaceFileSystem(address, user="alice") as files:
        yield files


@pytest.fixture
def bob(address: str) -> Iterator[PeaceFileSystem]:
    """Yield a client that reads other users' files over sockets only, because a shared descriptor stays usable."""
    with PeaceFileSystem(address, user="bob", local_sockets=False) as files:
        yield files


def opened_url(address: str, path: str, user: str) -> str:
    """Return the second URL of an OPEN."""
    url = f"{address}/webhdfs/v1{quote(path)}?op=OPEN&user.name={user}"
    answer = httpx.get(url, follow_redirects=False)
    assert answer.status_code == 307, answer.text
    return answer.headers["location"]


def close_directory(alice: PeaceFileSystem) -> None:
    alice.set_permission("/closed", 0o700)


def close_file(alice: PeaceFileSystem) -> None:
    alice.set_permission("/closed/small", 0o600)
    alice.set_permission("/closed/large", 0o600)


def move_away(alice: PeaceFileSystem) -> None:
    """Move a file below a directory that was never accessible."""
    alice.mkdirs("/private")
    alice.set_permission("/private", 0o700)
    alice.rename("/closed", "/private/closed")


@pytest.fixture
def shared(alice: PeaceFileSystem) -> Iterator[PeaceFileSystem]:
    """Make two files of alice's that everyone may read."""
    alice.write("/closed/small", SMALL)
    with alice.open_for_writing("/closed/large", block_bytes=8 * MIB) as file:
        file.write(LARGE)
    yield alice
    for path in ("/closed", "/private"):
        alice.delete(path, recursive=True)


@pytest.mark.parametrize("take", [close_directory, close_file, move_away])
@pytest.mark.evidence("rights-end-reads")
def test_an_old_url_is_refused_when_the_rights_are_gone(
    address: str, shared: PeaceFileSystem, take: Callable[[PeaceFileSystem], None]
) -> None:
    urls = [opened_url(address, f"/closed/{name}", "bob") for name in ("small", "large")]
    assert [httpx.get(url).content for url in urls] == [SMALL, LARGE]
    take(shared)
    taken_s = time.monotonic()
    for url in urls:
        wait_until(lambda url=url: httpx.get(url).status_code == 403, "the URL is good no more")
    assert time.monotonic() - taken_s < 30.0, "a busy machine may take its time, but not that of an hour"
    assert "Permission denied: user=bob" in httpx.get(urls[0]).text


def test_an_old_url_is_good_while_the_rights_are_there(address: str, shared: PeaceFileSystem) -> None:
    """A stock client does this when it seeks in a file that it opened long ago."""
    url = opened_url(address, "/closed/small", "bob")
    ends_s = time.monotonic() + 2.5 * LIFETIME_S
    while time.monotonic() < ends_s:
        assert httpx.get(url.replace("offset=0", "offset=5")).content == SMALL[5:]
        time.sleep(0.1)
    shared.rename("/closed/small", "/closed/renamed")
    assert httpx.get(url).content == SMALL, "it is the file that was opened, whatever it is called"


def slowly(url: str, between: Callable[[], None], seconds: float) -> bytes:
    """Read the body in small pieces over a given time; call `between` after the first piece."""
    asked = urlsplit(url)
    with socket.create_connection((asked.hostname, asked.port)) as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        request = f"GET {asked.path}?{asked.query} HTTP/1.1\r\nhost: {asked.netloc}\r\nconnection: close\r\n\r\n"
        wire.sendall(request.encode())
        received = wire.recv(4096)
        between()
        begun_s, bites = time.monotonic(), 0
        while piece := wire.recv(MIB // 4):
            received += piece
            if len(received) < len(LARGE) // 2:
                bites += 1
                time.sleep(max(0.0, min(0.02, begun_s + seconds - time.monotonic())))
            elif time.monotonic() < begun_s + seconds:
                time.sleep(begun_s + seconds - time.monotonic())
    return received.partition(b"\r\n\r\n")[2]


@pytest.mark.evidence("rights-end-reads")
def test_a_long_slow_read_goes_on(address: str, shared: PeaceFileSystem) -> None:
    url = opened_url(address, "/closed/large", "bob")
    assert slowly(url, lambda: None, 3 * LIFETIME_S) == LARGE


@pytest.mark.evidence("rights-end-reads")
def test_a_long_slow_read_ends_when_the_rights_are_gone(address: str, shared: PeaceFileSystem) -> None:
    url = opened_url(address, "/closed/large", "bob")
    received = slowly(url, lambda: close_directory(shared), 3 * LIFETIME_S)
    assert len(received) < len(LARGE)
    assert LARGE.startswith(received)


@pytest.mark.evidence("rights-end-reads")
def test_a_file_that_is_open_in_our_client_is_read_on_and_ends_with_the_rights(
    bob: PeaceFileSystem, shared: PeaceFileSystem
) -> None:
    with bob.open("/closed/large") as file:
        ends_s, at = time.monotonic() + 2.5 * LIFETIME_S, 0
        while time.monotonic() < ends_s:
            at = (at + 5 * MIB) % len(LARGE)
            file.seek(at)
            assert file.read(1000) == LARGE[at : at + 1000]
            assert file.read_at(at, 100) == LARGE[at : at + 100]
            time.sleep(0.1)
        close_directory(shared)

        def is_refused() -> bool:
            try:
                file.read_at(3, 100)
            except AccessDenied:
                return True
            return False

        wait_until(is_refused, "the reader is told that it may not")
    with pytest.raises(AccessDenied):
        bob.open("/closed/large")


def test_superuser_reads_on(address: str, shared: PeaceFileSystem) -> None:
    url = opened_url(address, "/closed/small", getpass.getuser())
    close_directory(shared)
    ends_s = time.monotonic() + 2 * LIFETIME_S
    while time.monotonic() < ends_s:
        assert httpx.get(url).content == SMALL
        time.sleep(0.1)
