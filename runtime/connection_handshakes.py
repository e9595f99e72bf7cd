"""Open or accept a connection: both sides of the handshake over a socket.

Over TLS, the certificate is checked first, and the handshake's proof covers the channel. Without TLS, the keys
that the handshake derives seal the connection.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Callable, Generator
from typing import Final

from peacefs.protocol.errors import (
    Overloaded,
    PeacefsError,
    PeerRefused,
    PeerTimeout,
    PeerUnreachable,
    ProtocolViolation,
)
from peacefs.protocol.handshake import COORDINATOR, Identity, Peer, accepting, connecting, welcomed
from peacefs.protocol.limits import KIB, MIB, connect_timeout_s, handshake_timeout_s, packet_bytes
from peacefs.protocol.messages import Failure, Message, Target
from peacefs.runtime.frame_budget import FrameBudget
from peacefs.runtime.tls import TlsIdentity

from . import effects as fx
from .connections import SocketConnection
from .local_sockets import dial, named, show_address, show_end
from .tls_socket import require_certificate

data_frame_bytes_max: Final = 5 * MIB
# The largest frames that clients send to a datanode are packets.
client_data_frame_bytes_max: Final = packet_bytes + 64 * KIB


def open_connection(
    address: fx.Address, name: str, me: Identity, tls: TlsIdentity | None = None, *, role: str = "datanode"
) -> tuple[SocketConnection, Peer]:
    """Connect and complete the handshake as `me` with the expected peer; with `tls`, over TLS.

    Raises PeerUnreachable, PeerTimeout or PeerRefused.
    """
    try:
        sock = dial(address, connect_timeout_s)
    except TimeoutError:
        raise PeerTimeout(f"{name} at {show_address(address)} did not answer in time") from None
    except OSError as error:
        raise PeerUnreachable(
            f"cannot connect to {name} at {show_address(address)}: {error.strerror or error}"
        ) from None
    connection = SocketConnection(sock, name)
    try:
        if tls is not None and not connection.is_local:
            connection.secure(tls.connector_context(), address[0])
        means = COORDINATOR if role == COORDINATOR else name
        target = Target(role, means, show_address(address), show_end(connection.ends, 1))
        steps = connecting(me, os.urandom(16), target=target, channel=connection.channel)
        connection.send(next(steps), b"", handshake_timeout_s)
        peer = _peer_after(steps, connection.receive(handshake_timeout_s).message)
        connection.send(peer.last_word, b"", handshake_timeout_s)
        connection.seal(peer.frame_keys)
        welcome = welcomed(connection.receive(handshake_timeout_s).message)
        connection.greeted()
        connection.local_address = named(welcome.local_socket)
        return connection, peer
    except BaseException:
        connection.close()
        raise


def accept_connection(
    connection: SocketConnection,
    me: Identity,
    budget: FrameBudget[SocketConnection] | None = None,
    admit: Callable[[Peer], None] = lambda _peer: None,
    tls: TlsIdentity | None = None,
    *,
    is_discreet: bool = False,
) -> Peer:
    """Complete a connector's handshake as `me`. Frames of clients then count against `budget`.

    With `tls`, all connections but local sockets use TLS, and services must show a certificate. Raises PeerRefused
    or ProtocolViolation, or Overloaded if `admit` does, after sending the reason to the connector unless
    `is_discreet`.
    """
    if tls is not None and not connection.is_local:
        connection.secure(tls.server_context(ssl.CERT_OPTIONAL))
    try:
        first = connection.receive(handshake_timeout_s).message
        channel = connection.channel
        if channel:
            require_certificate(first, is_shown=connection.has_peer_certificate)
        reached = show_end(connection.ends, 0)
        steps = accepting(me, os.urandom(16), first, channel=channel, reached=reached)
        connection.send(next(steps), b"", handshake_timeout_s)
        peer = _peer_after(steps, connection.receive(handshake_timeout_s).message)
        connection.seal(peer.frame_keys)
        admit(peer)
        connection.send(peer.last_word, b"", handshake_timeout_s)
        if peer.trusted:
            connection.greeted(data_frame_bytes_max)
        else:
            connection.greeted(client_data_frame_bytes_max, budget)
        return peer
    except (PeerRefused, ProtocolViolation, Overloaded) as refusal:
        if not is_discreet:
            with contextlib.suppress(PeacefsError):
                connection.send(Failure(refusal.code, refusal.message), b"", handshake_timeout_s)
        raise


def _peer_after(steps: Generator[Message, Message, Peer], message: Message) -> Peer:
    try:
        steps.send(message)
    except StopIteration as stop:
        peer: Peer = stop.value
        return peer
    raise AssertionError("a side of the handshake asks once")
