"""The HTTP server over TLS: requests work as without it; handshakes are limited in number and time."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.waiting import wait_until

from peacefs.client.local_cluster.trial_certificates import TrialAuthority
from peacefs.protocol.webhdfs.answers import json_answer, send_answer
from peacefs.runtime.tls import TlsFiles, TlsIdentity
from peacefs.service import tls_listener

HANDSHAKES_MAX = 4
HANDSHAKES_CLIENT_MAX = 3
HANDSHAKE_S = 1.0


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Respond with the scheme and the length of the body."""
    length, more = 0, True
    while more:
        event = await receive()
        length, more = length + len(event.get("body", b"")), event.get("more_body", False)
    await send_answer(scope, send, json_answer([scope["scheme"], length]))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> TrialAuthority:
    return TrialAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def served(serve: Any, authority: TrialAuthority) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as quicker:
        quicker.setattr(tls_listener, "http_linger_s", 0.5)
        quicker.setattr(tls_listener, "tls_fault_log_pause_s", 0.0)
        quicker.setitem(tls_listener.TlsListener.__init__.__kwdefaults__, "handshakes_max", HANDSHAKES_MAX)
        share = "handshakes_client_max"
        quicker.setitem(tls_listener.TlsListener.__init__.__kwdefaults__, share, HANDSHAKES_CLIENT_MAX)
        quicker.setitem(tls_listener.TlsListener.__init__.__kwdefaults__, "handshake_timeout_s", HANDSHAKE_S)
        identity = TlsIdentity(authority.issue(["127.0.0.1"]), "127.0.0.1")
        with serve(lambda: application, identity) as served:
            yield served


@pytest.fixture
def trusting(authority: TrialAuthority) -> ssl.SSLContext:
    return TlsIdentity(TlsFiles(ca=authority.ca)).connector_context()


def until_closed(wire: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := wire.recv(65536):
            received += piece
    return received


def test_https_carries_small_and_large_bodies_over_kept_connections(served, trusting):
    with httpx.Client(base_url=f"https://127.0.0.1:{served.port}", verify=trusting, trust_env=False) as client:
        for size in (0, 1, 5_000_000, 17):
            assert client.put("/x", content=bytes(size)).json() == ["https", size]
    wait_until(lambda: served.connections() == 0, "the connection has ended")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_https_speaks_both_versions_that_are_safe(served, trusting, version):
    trusting.minimum_version = trusting.maximum_version = version
    with trusting.wrap_socket(served.connect(), server_hostname="127.0.0.1") as wire:
        assert wire.version() == version.name.replace("_", ".")
        wire.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert until_closed(wire).startswith(b"HTTP/1.1 200")


def test_older_version_of_tls_is_refused(served, trusting):
    with warnings.catch_warnings():
        # Python warns about this version.
        warnings.simplefilter("ignore", DeprecationWarning)
        trusting.minimum_version = trusting.maximum_version = ssl.TLSVersion.TLSv1_1
    trusting.set_ciphers("ALL:@SECLEVEL=0")
    with served.connect() as wire, pytest.raises(ssl.SSLError):
        trusting.wrap_socket(wire, server_hostname="127.0.0.1")


def test_plain_request_is_told_to_use_https(served):
    with served.connect() as wire:
        wire.sendall(b"GET /webhdfs/v1/?op=LISTSTATUS HTTP/1.1\r\nhost: x\r\n\r\n")
        head, _, body = until_closed(wire).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert "use https://" in json.loads(body)["RemoteException"]["message"]


def test_nonsense_gets_no_answer(served, caplog):
    with served.connect() as wire:
        wire.sendall(b"\x00\x01\x02\x03")
        assert until_closed(wire) == b""
    wait_until(lambda: "does not speak TLS" in caplog.text, "it is logged")


def test_broken_handshake_is_logged_in_one_line(served, caplog):
    with served.connect() as wire:
        wire.sendall(b"\x16\x03\x01\x00\x05hello")
        until_closed(wire)
    wait_until(lambda: "a TLS handshake failed: 127.0.0.1" in caplog.text, "it is logged")
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("begins", [b"", b"\x16", b"\x16\x03\x01"])
def test_stranger_who_does_not_finish_its_handshake_is_hung_up_on(served, begins):
    with served.connect() as wire:
        wire.sendall(begins)
        began_s = time.monotonic()
        until_closed(wire)
        assert time.monotonic() - began_s >= HANDSHAKE_S / 2


def test_strangers_over_the_limit_close_the_oldest_and_others_are_served(served, trusting):
    with contextlib.ExitStack() as opened:
        silent = [opened.enter_context(served.connect()) for _ in range(HANDSHAKES_MAX)]
        for wire in silent:
            wire.sendall(b"\x16")
        with httpx.Client(base_url=f"https://127.0.0.1:{served.port}", verify=trusting, trust_env=False) as client:
            assert client.get("/").json() == ["https", 0]
        assert until_closed(silent[0]) == b""


def test_client_with_its_share_of_handshakes_loses_its_own_and_no_other(served):
    with contextlib.ExitStack() as opened:
        other = opened.enter_context(
            socket.create_connection(("127.0.0.1", served.port), timeout=120, source_address=("127.0.0.2", 0))
        )
        crowd = [opened.enter_context(served.connect()) for _ in range(HANDSHAKES_CLIENT_MAX + 1)]
        assert until_closed(crowd[0]) == b""
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.recv(1)


def test_tls_client_of_a_plain_server_finds_that_it_is_plain(serve, trusting):
    with serve(lambda: application) as plain, plain.connect() as wire:
        with pytest.raises(ssl.SSLError) as fault:
            trusting.wrap_socket(wire, server_hostname="127.0.0.1")
        assert fault.value.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")


def test_new_certificate_is_shown_to_new_connections(serve, tmp_path: Path):
    clock = [0.0]
    authority = TrialAuthority(tmp_path / "ca")
    identity = TlsIdentity(authority.issue(["127.0.0.1"]), "127.0.0.1", clock=lambda: clock[0])
    trusting = TlsIdentity(TlsFiles(ca=authority.ca)).connector_context()

    def shown(wire: ssl.SSLSocket) -> bytes:
        found = wire.getpeercert(binary_form=True)
        assert found is not None
        return found

    with (
        serve(lambda: application, identity) as served,
        trusting.wrap_socket(served.connect(), server_hostname="127.0.0.1") as kept,
    ):
        authority.issue(["127.0.0.1"])
        for _ in range(2):
            clock[0] += 10.0
            identity.look()
        with trusting.wrap_socket(served.connect(), server_hostname="127.0.0.1") as fresh:
            assert shown(fresh) != shown(kept)
        kept.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert until_closed(kept).startswith(b"HTTP/1.1 200")
