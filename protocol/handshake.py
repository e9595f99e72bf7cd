"""The hello: both sides of a new connection find out that they belong to one cluster, before anything else.

    connector                                acceptor
    Hello(version, cluster, role, nonce) ->
                                          <- Challenge(version, cluster, nonce, proof)   or Failure
    Proof(proof)                         ->
                                          <- Welcome                                     or Failure

Services prove with the cluster secret, each to the other, over both nonces. A client knows no secret: it sends
an empty proof and may then only make requests that carry a token. Written once, without I/O: `connecting` and
`accepting` are generators of messages to send, resumed with the message received.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

from . import errors
from .messages import (
    PROTOCOL_VERSION,
    Challenge,
    Failure,
    Hello,
    Message,
    Proof,
    Welcome,
)
from .tokens import Signer

M = TypeVar("M", bound=Message)
_ROLES = ("client", "datanode", "agent", "coordinator")


@dataclass(frozen=True)
class Identity:
    """Who a participant is on the wire. `signer` is None for clients; `cluster` is empty until known.

    `local_socket` is the name of the one by which processes of its host reach it besides.
    """

    cluster: str
    role: str
    name: str
    signer: Signer | None
    local_socket: str = ""
    #: Gives a client's bearer token, for connections to the coordinator alone.
    credential: Callable[[], str] | None = None


@dataclass(frozen=True)
class Peer:
    """Who the other side turned out to be. Only `trusted` peers have shown that they know the secret."""

    cluster: str
    role: str
    name: str
    trusted: bool
    local_socket: str = ""
    #: A client's bearer token, which nobody has verified yet.
    credential: str = ""


def connecting(me: Identity, nonce: bytes) -> Generator[Message, Message, Peer]:
    """The connector's side. Raises PeerRefused when the acceptor says no or is not who it should be."""
    credential = me.credential() if me.credential is not None else ""
    hello = Hello(PROTOCOL_VERSION, me.cluster, me.role, me.name, nonce, credential)
    challenge = _expect(Challenge, (yield hello))
    if challenge.version != PROTOCOL_VERSION:
        raise errors.PeerRefused(
            f"{challenge.name} speaks protocol version {challenge.version}, this side {PROTOCOL_VERSION}"
        )
    if me.cluster and challenge.cluster != me.cluster:
        raise errors.PeerRefused(
            f"{challenge.name} belongs to cluster {challenge.cluster}, this side to {me.cluster}"
        )
    proof = b""
    if me.signer is not None:
        expected = me.signer.hello_proof(b"acceptor", nonce, challenge.nonce)
        if not hmac.compare_digest(expected, challenge.proof):
            # Or the other end has another, but this one is more likely to have come later.
            raise errors.PeerRefused(_without_secret(me.name, challenge.cluster))
        proof = me.signer.hello_proof(b"connector", nonce, challenge.nonce)
    welcome = _expect(Welcome, (yield Proof(proof)))
    trusted = me.signer is not None
    return Peer(challenge.cluster, "", challenge.name, trusted, welcome.local_socket)


def accepting(me: Identity, nonce: bytes, first: Message) -> Generator[Message, Message, Peer]:
    """The acceptor's side, begun with the first message; yields the last `Welcome` without needing a reply.

    Raises PeerRefused, which the shell sends as Failure before it closes.
    """
    assert me.signer is not None, "acceptors are services and know the secret"
    hello = _expect(Hello, first)
    if hello.version != PROTOCOL_VERSION:
        raise errors.PeerRefused(
            f"{me.name} speaks protocol version {PROTOCOL_VERSION}, {hello.name} {hello.version}"
        )
    if hello.role not in _ROLES:
        raise errors.PeerRefused(f"unknown role {hello.role!r}")
    if hello.cluster and me.cluster and hello.cluster != me.cluster:
        raise errors.PeerRefused(f"{me.name} belongs to cluster {me.cluster}, {hello.name} to {hello.cluster}")
    challenge = Challenge(
        PROTOCOL_VERSION, me.cluster, me.name, nonce, me.signer.hello_proof(b"acceptor", hello.nonce, nonce)
    )
    proof = _expect(Proof, (yield challenge))
    trusted = hmac.compare_digest(me.signer.hello_proof(b"connector", hello.nonce, nonce), proof.proof)
    if not trusted and hello.role != "client":
        raise errors.PeerRefused(_without_secret(hello.name, me.cluster))
    yield Welcome(me.local_socket)
    return Peer(hello.cluster, hello.role, hello.name, trusted, credential=hello.credential)


def _without_secret(name: str, cluster: str) -> str:
    return f"{name} does not know the secret of cluster {cluster}: give it the same --secret-file"


def _expect(kind: type[M], message: Message) -> M:
    if isinstance(message, Failure):
        raise errors.PeerRefused(message.message)
    if not isinstance(message, kind):
        raise errors.ProtocolViolation(f"{kind.__name__} expected, {type(message).__name__} received")
    return message
