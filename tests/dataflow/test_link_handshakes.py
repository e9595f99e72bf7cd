"""Connections of a dataflow begin with the services' handshake, and strangers learn and change nothing."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from crc32c import crc32c
from support.waiting import PATIENCE_S, wait_until

from peacefs.client.local_cluster.trial_certificates import TrialAuthority
from peacefs.dataflow.core.messages import Data, NodeAlive, Subscription
from peacefs.dataflow.hosts import door as door_module
from peacefs.dataflow.hosts.links import Links
from peacefs.dataflow.hosts.membership import Member, Membership
from peacefs.dataflow.hosts.wire import encode
from peacefs.dataflow.model.batches import Batch
from peacefs.protocol.errors import PeerError
from peacefs.protocol.handshake import Identity, Peer
from peacefs.protocol.messages import PROTOCOL_VERSION
from peacefs.protocol.seals import RECORD_BYTES_OVER
from peacefs.protocol.tokens import Signer
from peacefs.runtime.connection_handshakes import open_connection
from peacefs.runtime.protected_stream import ProtectedStream
from peacefs.runtime.tls import TlsFiles

_TOKEN = "a" * 32
_ROWS = pa.schema([("value", pa.int64())])


class Process:
    """Links on a thread of their own, as in a process of a query. It records what it receives."""

    def __init__(self, name: str, token: str = _TOKEN, tls: TlsFiles | None = None) -> None:
        self.received: list[Any] = []
        self.broken: list[str] = []
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.links = Links(
            Membership(Member(name, token, tls)),
            {"in": _ROWS},
            lambda peer, message: self.received.append((peer, message)),
            self.broken.append,
        )
        self.address = asyncio.run_coroutine_threadsafe(self._listen(), self.loop).result(PATIENCE_S)

    async def _listen(self) -> str:
        return self.links.listen()

    def send(self, peer: str, address: str, session: str) -> None:
        self.loop.call_soon_threadsafe(self.links.send, peer, address, NodeAlive("node-1", session))

    def heard(self) -> list[tuple[str, str]]:
        return [(peer, message.session) for peer, message in self.received]

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.links.close(), self.loop).result(PATIENCE_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture
def begin() -> Iterator[Callable[..., Process]]:
    begun: list[Process] = []

    def begin(*given: Any, **named: Any) -> Process:
        begun.append(Process(*given, **named))
        return begun[-1]

    yield begin
    for process in begun:
        process.close()


def _dialled(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def _frame(message: dict[str, Any] | list[Any]) -> bytes:
    """Return a frame as the docstring of `protocol/frames.py` describes it."""
    body = msgspec.msgpack.encode(message)
    prefix = struct.pack(">2sBBIII", b"pf", 1, 0, 0, len(body), 0)
    return prefix + struct.pack(">I", crc32c(body, crc32c(prefix))) + body


def _answer(address: str, data: bytes) -> bytes:
    """Send bytes, and return everything that the other end sends until it closes."""
    with _dialled(address) as connection:
        connection.sendall(data)
        answer = b""
        try:
            while more := connection.recv(4096):
                answer += more
        except ConnectionResetError:
            pass
        return answer


def _sealed(stream: ProtectedStream) -> bytes:
    return b"".join(map(bytes, stream.seal(encode(NodeAlive("node-1", "session"))[0], b"")))


def test_processes_of_a_query_prove_themselves_to_each_other(begin: Callable[..., Process]) -> None:
    edge, node = begin("edge"), begin("node-1")
    node.send("edge", edge.address, "one")
    node.send("edge", edge.address, "two")
    edge.send("node-1", node.address, "three")
    wait_until(lambda: len(edge.received) == 2 and len(node.received) == 1, "messages")
    assert edge.heard() == [("node-1", "one"), ("node-1", "two")]
    assert node.heard() == [("edge", "three")]
    assert edge.broken == node.broken == []


def test_stranger_is_told_nothing_and_changes_nothing(begin: Callable[..., Process]) -> None:
    """Whatever a stranger says, the connection ends without a byte, and no message arrives."""
    edge, node = begin("edge"), begin("node-1")
    hello: dict[str, Any] = {"type": "Hello", "version": PROTOCOL_VERSION, "newest": PROTOCOL_VERSION}
    hello |= {"cluster": "", "role": "node", "name": "node-1"}
    hello |= {"nonce": os.urandom(16), "target": ["node", "edge", edge.address, edge.address]}
    other = Signer(b"b" * 32).handshake_secrets[0].name
    said = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"".join(map(bytes, encode(NodeAlive("node-1", "session")))),
        *(_frame(hello | {"role": role, "secrets": [other]}) for role in ("node", "beats", "client", "datanode")),
        _frame(hello | {"secrets": []}),
        _frame(hello | {"target": ["coordinator", "coordinator", "", ""]}),
    ]
    # The form of the messages is right: a process that names the token's secret is asked for its proof.
    known = hello | {"secrets": [Signer(_TOKEN.encode()).handshake_secrets[0].name]}
    assert b"Challenge" in _answer(edge.address, _frame(known) + _frame({"type": "Proof", "proof": b""}))
    for data in said:
        assert _answer(edge.address, data) == b"", data
    for role in ("client", "node", "beats", "datanode", "coordinator"):
        for signer in (None, Signer(b"b" * 32)):
            me = Identity("", role, "node-1", signer)
            host, _, port = edge.address.rpartition(":")
            with pytest.raises(PeerError) as refusal:
                open_connection((host, int(port)), "edge", me, role="node")
            assert "closed the connection" in refusal.value.message, (role, signer)
    node.send("edge", edge.address, "one")
    wait_until(lambda: edge.received, "a message of the honest node")
    assert edge.heard() == [("node-1", "one")]
    assert edge.broken == []


def test_token_is_not_shown_to_who_has_taken_an_address(begin: Callable[..., Process]) -> None:
    """A node does not send to a process with another token, nor to one that is not the one it means."""
    node, impostor, other = begin("node-1"), begin("edge", "b" * 32), begin("node-2")
    node.send("edge", impostor.address, "one")
    wait_until(lambda: node.broken == ["edge"], "the refusal")
    node.send("edge", other.address, "two")
    wait_until(lambda: node.broken == ["edge", "edge"], "the refusal")
    assert impostor.received == other.received == []
    with pytest.raises(PeerError):
        Membership(Member("node-1", _TOKEN)).dial("edge", other.address, lambda: False)


def test_messages_are_refused_whichever_byte_is_changed_on_their_way(begin: Callable[..., Process]) -> None:
    """After the handshake each byte is sealed: a changed one ends the connection, and no message of it arrives."""
    membership = Membership(Member("node-1", _TOKEN))
    edge = begin("edge")
    sealed_bytes = len(encode(NodeAlive("node-1", "session"))[0]) + RECORD_BYTES_OVER
    for place in range(sealed_bytes):
        stream = membership.dial("edge", edge.address, lambda: False)
        with stream.sock:
            data = bytearray(_sealed(stream))
            assert len(data) == sealed_bytes
            data[place] ^= 0x40
            broken = len(edge.broken)
            stream.sock.sendall(data)
            # A changed length may announce more than was sent.
            stream.sock.shutdown(socket.SHUT_WR)
            wait_until(lambda broken=broken: len(edge.broken) > broken, "the end of the connection")
        assert edge.received == [], place


def test_handshake_is_answered_while_a_node_is_busy(begin: Callable[..., Process]) -> None:
    """A process that is busy with one batch neither loses nor refuses a connection."""
    edge, node = begin("edge"), begin("node-1")
    goes_on = threading.Event()
    edge.loop.call_soon_threadsafe(goes_on.wait)
    stream = Membership(Member("node-2", _TOKEN)).dial("edge", edge.address, lambda: False)
    with stream.sock:
        node.send("edge", edge.address, "one")
        assert edge.received == []
        goes_on.set()
        wait_until(lambda: edge.heard() == [("node-1", "one")], "the message")
        assert edge.broken == []
    wait_until(lambda: edge.broken == ["node-2"], "the end of the other connection")


def test_silent_stranger_is_hung_up_on(begin: Callable[..., Process], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peacefs.runtime.connection_handshakes.handshake_timeout_s", 0.2)
    edge = begin("edge")
    with _dialled(edge.address) as silent:
        assert silent.recv(1) == b""
    assert edge.broken == []


def test_crowd_of_strangers_leaves_room_for_members(
    begin: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_module, "dataflow_strangers_max", 8)
    edge, node = begin("edge"), begin("node-1")
    crowd = [_dialled(edge.address) for _ in range(20)]
    node.send("edge", edge.address, "one")
    wait_until(lambda: edge.heard() == [("node-1", "one")], "the message")
    for stranger in crowd:
        stranger.close()
    assert edge.broken == []


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[TlsFiles, TlsFiles]:
    """Certificates of two authorities."""
    return _issued(tmp_path_factory.mktemp("ours")), _issued(tmp_path_factory.mktemp("others"))


def _issued(directory: Path) -> TlsFiles:
    return TrialAuthority(directory).issue(["127.0.0.1"])


@pytest.mark.parametrize("with_tls", [False, True])
def test_rows_of_any_number_arrive_as_they_were(
    begin: Callable[..., Process], certificates: tuple[TlsFiles, TlsFiles], with_tls: bool
) -> None:
    """Large messages are sealed in other pieces than small ones."""
    tls = certificates[0] if with_tls else None
    edge, node = begin("edge", tls=tls), begin("node-1", tls=tls)
    first = 1
    for count in (1, 100, 10_000, 300_000):
        rows = pa.record_batch([pa.array(range(first, first + count))], schema=_ROWS)
        data = Data("in", Subscription("unit", 1, 1), Batch(first, rows))
        node.loop.call_soon_threadsafe(node.links.send, "edge", edge.address, data)
        first += count
    wait_until(lambda: len(edge.received) == 4, "rows")
    arrived = [value for _, data in edge.received for value in data.batch.rows.column("value").to_pylist()]
    assert arrived == list(range(1, first))


@pytest.mark.parametrize("is_known", [True, False])
def test_connections_use_tls_with_the_certificates_of_services(
    begin: Callable[..., Process], certificates: tuple[TlsFiles, TlsFiles], is_known: bool
) -> None:
    """Over TLS, a process needs a certificate of the CA in addition to the token."""
    ours, others = certificates
    edge, node = begin("edge", tls=ours), begin("node-1", tls=ours if is_known else others)
    for session in ("one", "x" * 200_000, "two"):
        node.send("edge", edge.address, session)
    if is_known:
        wait_until(lambda: len(edge.received) == 3, "messages")
        assert edge.heard() == [("node-1", "one"), ("node-1", "x" * 200_000), ("node-1", "two")]
        plain = Membership(Member("node-1", _TOKEN))
        with pytest.raises(PeerError):
            plain.dial("edge", edge.address, lambda: False)
    else:
        wait_until(lambda: node.broken == ["edge"], "the refusal")
        assert edge.received == []


def test_message_that_cannot_be_sent_is_an_error_of_the_process(begin: Callable[..., Process]) -> None:
    edge, node = begin("edge"), begin("node-1")
    found: list[Any] = []
    node.loop.set_exception_handler(lambda _, context: found.append(context["exception"]))
    node.loop.call_soon_threadsafe(node.links.send, "edge", edge.address, {"no": "message"})
    wait_until(lambda: found, "the error")
    assert isinstance(found[0], KeyError)


def test_connection_that_is_accepted_while_links_close_is_closed() -> None:
    """Its handshake ends on another thread, and the loop never gets to read from it."""
    ours, theirs = socket.socketpair()
    late, other = socket.socketpair()
    with theirs, other:
        asyncio.run(_close_after_an_entry(ours, late))
        theirs.settimeout(PATIENCE_S)
        other.settimeout(PATIENCE_S)
        assert (theirs.recv(1), other.recv(1)) == (b"", b"")
    assert (ours.fileno(), late.fileno()) == (-1, -1)


async def _close_after_an_entry(ours: socket.socket, late: socket.socket) -> None:
    links = Links(Membership(Member("a", _TOKEN)), {}, lambda *_: None, lambda _: None)
    links.listen()
    assert links._door is not None
    entered = links._door._entered
    peer = Peer("cluster", "node", "b", True, None)  # type: ignore[arg-type]
    entered(peer, ProtectedStream(ours, lambda *parts: parts, lambda data: data))
    await links.close()
    entered(peer, ProtectedStream(late, lambda *parts: parts, lambda data: data))
