"""The ports of a running cluster, and connections to them, as an attacker has them.

All connections are made by `connect`; with TLS it is another function.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from support.spoken_link import told_by

from peacefs.protocol.frames import FrameReader, encode
from peacefs.protocol.handshake import COORDINATOR, Identity, connecting
from peacefs.protocol.messages import Message, Target, Welcome
from peacefs.protocol.seals import Opener, Sealer
from peacefs.protocol.tokens import Signer
from peacefs.runtime.connection_handshakes import open_connection

_PATIENCE_S = 10.0


@dataclass(frozen=True)
class Door:
    """The address of a service; `port` is None for a local socket. `serves_http`: HTTP besides or instead of
    frames.
    """

    name: str
    host: str
    port: int | None
    serves_http: bool
    serves_frames: bool
    #: The role of the service.
    role: str
    node: str


def connect(door: Door) -> socket.socket:
    """Return a connection without TLS."""
    if door.port is not None:
        return socket.create_connection((door.host, door.port), timeout=_PATIENCE_S)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_PATIENCE_S)
    connection.connect(door.host if door.host.startswith("/") else f"\0{door.host}")
    return connection


def doors_of(cluster: Any) -> list[Door]:
    """Return every port of a local cluster's coordinator and of its first datanode."""
    coordinator, datanode = cluster.coordinator.readiness, cluster.datanodes[0].readiness
    host = coordinator.http_host
    stranger = Identity("", "client", "a stranger", None)
    connection, _peer = open_connection((datanode.http_host, datanode.data_port), datanode.node, stranger)
    connection.close()
    assert connection.local_address is not None
    names = (COORDINATOR, COORDINATOR)
    node = ("datanode", datanode.node)
    return [
        Door("coordinator HTTP", host, coordinator.http_port, True, True, *names),
        Door("coordinator nodes", coordinator.node_host, coordinator.node_port, False, True, *names),
        Door("coordinator HDFS", host, coordinator.hdfs_port, False, False, *names),
        Door("datanode HTTP", datanode.http_host, datanode.http_port, True, False, *node),
        Door("datanode HDFS", datanode.http_host, datanode.hdfs_port, False, False, *node),
        Door("datanode data", datanode.http_host, datanode.data_port, False, True, *node),
        Door("datanode local socket", connection.local_address[0], None, False, True, *node),
    ]


def throw(connection: socket.socket, data: bytes, rng: random.Random) -> bytes:
    """Send data in one piece or several; receive until the end, or for a moment."""
    received = b""
    with connection, contextlib.suppress(OSError):
        connection.settimeout(_PATIENCE_S)
        for piece in _pieces(data, rng):
            connection.sendall(piece)
        if rng.random() < 0.7:
            connection.shutdown(socket.SHUT_WR)
        else:
            connection.settimeout(0.02)
        while len(received) < 1 << 20 and (piece := connection.recv(1 << 16)):
            received += piece
    return received


def _pieces(data: bytes, rng: random.Random) -> list[bytes]:
    if len(data) < 2 or rng.random() < 0.7:
        return [data]
    cut = rng.randrange(1, len(data))
    return [data[:cut], data[cut:]]


def shake_hands(
    connection: socket.socket, door: Door, role: str, signer: Signer | None
) -> Callable[[bytes], bytes] | None:
    """Complete the handshake as a client, or as a service with the secret; return None if refused.

    Also returns the function that seals bytes for the other side, if it requires seals.
    """
    reader = FrameReader()

    def heard() -> Message:
        while (frame := reader.next()) is None:
            received = connection.recv(1 << 16)
            if not received:
                raise ConnectionError("it has hung up")
            reader.take(received)
        return frame.message

    address = f"{door.host}:{door.port}"
    talk = connecting(
        Identity("", role, "dn-hostile", signer), b"h" * 16, target=Target(door.role, door.node, address, address)
    )
    try:
        connection.sendall(encode(next(talk)))
        peer = told_by(talk, heard())
        connection.sendall(encode(peer.last_word))
        if (keys := peer.frame_keys) is not None:
            reader.opener = Opener(keys.receiving)
        if not isinstance(heard(), Welcome):
            return None
    except Exception:
        return None
    if keys is None:
        return lambda data: data
    sealer = Sealer(keys.sending)
    return lambda data: b"".join(sealer.seal(data))
