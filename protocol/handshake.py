"""The handshake, with which both sides of a new connection authenticate each other.

    connector                                        acceptor
    Hello(version, cluster, role, name, target, nonce) ->
                                          <- Challenge(version, cluster, role, name, nonce, proof)  or Failure
    Proof(proof)                         ->
                                          <- Welcome                                                or Failure

Services prove to each other that they know the cluster secret. A proof covers all of Hello and Challenge: protocol
version, cluster, both roles and names, the target and its address, both nonces; over TLS, the `channel`, too. The
acceptor refuses a Hello that is meant for another service, and proves first. So a connector shows its proof only
to its intended target, and relaying a handshake gains an attacker nothing. The keys that seal all later frames are
derived from the same messages (`seals`).

A client does not know the secret. It sends an empty proof and may then only make requests that carry a token.

Each side supports a range of versions, and both use the newest common version (decision 58). If there is none, the
refusal says which side must be upgraded.

`connecting` and `accepting` do no I/O. They are generators that yield messages to send and are resumed with the
message received. Each returns a `Peer`, whose `last_word` the caller must still send. The connector's Proof is
sent unsealed. Everything after it is sealed, beginning with the acceptor's Welcome.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Generator
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from . import errors
from .messages import (
    PROTOCOL_VERSION,
    PROTOCOL_VERSION_OLDEST,
    Challenge,
    Failure,
    Hello,
    Message,
    Proof,
    Target,
    Welcome,
)
from .seals import SEAL_KEY_BYTES, FrameKeys
from .tokens import HandshakeSecret, Signer

M = TypeVar("M", bound=Message)
_ROLES: Final = ("client", "datanode", "agent", "coordinator")
#: The name, and the role, of the coordinator.
COORDINATOR: Final = "coordinator"


@dataclass(frozen=True)
class SpokenVersions:
    """A range of protocol versions, both ends included."""

    oldest: int
    newest: int

    def __str__(self) -> str:
        return f"{self.newest}" if self.oldest == self.newest else f"{self.oldest} to {self.newest}"

    def newest_common(self, other: SpokenVersions) -> int | None:
        """Return the newest version in both ranges, or None if they do not overlap."""
        common = min(self.newest, other.newest)
        return common if common >= max(self.oldest, other.oldest) else None


#: The versions of this release.
SPOKEN: Final = SpokenVersions(PROTOCOL_VERSION_OLDEST, PROTOCOL_VERSION)


@dataclass(frozen=True)
class Identity:
    """What a service or client says about itself. `signer` is None for clients; `cluster` is empty until known.

    `local_socket` is the name of the service's local socket, for processes on its host. `addresses` (host:port)
    are advertised, in addition to the addresses that its sockets are bound to. A client sends `credential` to
    authenticate its user. `admits`: the roles that may connect to it.
    """

    cluster: str
    role: str
    name: str
    signer: Signer | None
    local_socket: str = ""
    addresses: Collection[str] = ()
    credential: str = field(default="", repr=False)
    versions: SpokenVersions = SPOKEN
    admits: Collection[str] = _ROLES


@dataclass(frozen=True)
class Peer:
    """The identity of the other side. It is `trusted` if it has proved that it knows the secret."""

    cluster: str
    role: str
    name: str
    trusted: bool
    #: The last message of the handshake, still to be sent to the peer.
    last_word: Proof | Welcome
    #: None if TLS protects the connection, and for clients.
    frame_keys: FrameKeys | None = None
    #: A hash of the whole handshake, unique to this connection.
    transcript: bytes = b""
    credential: str = field(default="", repr=False)
    #: The protocol version of this connection.
    version: int = PROTOCOL_VERSION


def connecting(
    me: Identity, nonce: bytes, *, target: Target, channel: bytes = b""
) -> Generator[Message, Message, Peer]:
    """Run the connector's side. Raises PeerRefused if the acceptor refuses or is not the target."""
    secrets = [] if me.signer is None else [secret.name for secret in me.signer.handshake_secrets]
    oldest, newest = me.versions.oldest, me.versions.newest
    hello = Hello(oldest, me.cluster, me.role, me.name, nonce, target, secrets, me.credential, newest)
    challenge = _expect(Challenge, (yield hello))
    _check_challenge(me, challenge, target)
    # An acceptor that does not know version ranges has ignored `newest`, so its transcript lacks it.
    heard = hello if challenge.newest else msgspec.structs.replace(hello, newest=0)
    transcript = _transcript(heard, challenge, channel)
    keys, proof = None, b""
    if me.signer is not None:
        secret = me.signer.handshake_secret([challenge.secret])
        if secret is None or not hmac.compare_digest(secret.prove(b"acceptor", transcript), challenge.proof):
            # The acceptor's secret may be the wrong one, but more likely ours is: connectors are set up later.
            raise errors.PeerRefused(_without_secret(me.name, challenge.cluster))
        proof = secret.prove(b"connector", transcript)
        if not channel:
            keys = FrameKeys(*_frame_keys(secret, transcript))
    return Peer(
        challenge.cluster,
        challenge.role,
        challenge.name,
        trusted=me.signer is not None,
        last_word=Proof(proof),
        frame_keys=keys,
        transcript=transcript,
        version=challenge.version,
    )


def welcomed(message: Message) -> Welcome:
    """Check the acceptor's answer to the Proof. Raises PeerRefused if the acceptor refuses."""
    return _expect(Welcome, message)


def _what_to_upgrade(ours: SpokenVersions, theirs: SpokenVersions, them: str, us: str) -> str:
    return f"upgrade peacefs where {them if theirs.newest < ours.newest else us} runs"


def _versions_of(message: Hello | Challenge) -> SpokenVersions:
    return SpokenVersions(message.version, message.newest or message.version)


def _check_challenge(me: Identity, challenge: Challenge, target: Target) -> None:
    if not me.versions.oldest <= challenge.version <= me.versions.newest:
        theirs = SpokenVersions(challenge.version, challenge.version)
        raise errors.PeerRefused(
            f"{challenge.name} speaks protocol version {theirs}, this side {me.versions}: "
            f"{_what_to_upgrade(me.versions, theirs, challenge.name, 'this one')}"
        )
    if me.cluster and challenge.cluster != me.cluster:
        raise errors.PeerRefused(
            f"{challenge.name} belongs to cluster {challenge.cluster}, this side to {me.cluster}"
        )
    if (challenge.role, challenge.name) != (target.role, target.name):
        raise errors.PeerRefused(
            f"{target.role} {target.name} was meant, {challenge.role} {challenge.name} answers at {target.address}"
        )


def accepting(
    me: Identity, nonce: bytes, first: Message, *, channel: bytes = b"", reached: str = ""
) -> Generator[Message, Message, Peer]:
    """Run the acceptor's side from the first message; `reached` is this end of the connection, as host:port.

    Raises PeerRefused, which the shell must send as Failure before it closes the connection.
    """
    assert me.signer is not None, "acceptors are services and know the secret"
    hello = _expect(Hello, first)
    version = _check_handshake(me, hello, reached)
    secret = me.signer.handshake_secret(hello.secrets) if hello.role != "client" else None
    if secret is None and hello.role != "client":
        raise errors.PeerRefused(_without_secret(hello.name, me.cluster))
    unproven = Challenge(
        *(version, me.cluster, me.name, nonce, b"", me.role, b"" if secret is None else secret.name),
        newest=me.versions.newest if hello.newest else 0,
    )
    transcript = _transcript(hello, unproven, channel)
    if secret is None:
        _expect(Proof, (yield unproven))
        return Peer(
            hello.cluster,
            hello.role,
            hello.name,
            trusted=False,
            last_word=Welcome(me.local_socket),
            transcript=transcript,
            credential=hello.credential,
            version=version,
        )
    challenge = msgspec.structs.replace(unproven, proof=secret.prove(b"acceptor", transcript))
    proof = _expect(Proof, (yield challenge))
    if not hmac.compare_digest(secret.prove(b"connector", transcript), proof.proof):
        raise errors.PeerRefused(_without_secret(hello.name, me.cluster))
    keys = None if channel else FrameKeys(*reversed(_frame_keys(secret, transcript)))
    return Peer(
        hello.cluster,
        hello.role,
        hello.name,
        trusted=True,
        last_word=Welcome(me.local_socket),
        frame_keys=keys,
        transcript=transcript,
        version=version,
    )


def _check_handshake(me: Identity, hello: Hello, reached: str) -> int:
    """Return the protocol version to use. Raises PeerRefused."""
    theirs = _versions_of(hello)
    version = me.versions.newest_common(theirs)
    if version is None:
        raise errors.PeerRefused(
            f"{me.name} speaks protocol version {me.versions}, {hello.name} {theirs}: "
            f"{_what_to_upgrade(me.versions, theirs, hello.name, me.name)}"
        )
    if hello.role not in me.admits:
        raise errors.PeerRefused(f"unknown role {hello.role!r}")
    if hello.cluster and me.cluster and hello.cluster != me.cluster:
        raise errors.PeerRefused(f"{me.name} belongs to cluster {me.cluster}, {hello.name} to {hello.cluster}")
    target = hello.target
    if (target.role, target.name) != (me.role, me.name):
        raise errors.PeerRefused(
            f"{hello.name} means {target.role} {target.name}, this is {me.role} {me.name}: "
            "another service has had this address, or what was said to another one was passed on"
        )
    # Clients send no proof that could be relayed, and may connect through a tunnel or another port.
    if hello.role != "client" and not {target.address, target.reached} & {*me.addresses, reached}:
        raise errors.PeerRefused(
            f"{me.name} was reached as {target.address} ({target.reached}), which is not an address of it: "
            f"start it with --advertise and the host by which others reach it"
        )
    return version


def _transcript(hello: Hello, challenge: Challenge, channel: bytes) -> bytes:
    """Hash everything that both sides said, except the proofs."""
    said = (b"peacefs handshake", hello, msgspec.structs.replace(challenge, proof=b""), channel)
    return hashlib.sha256(msgspec.msgpack.encode(said)).digest()


def _frame_keys(secret: HandshakeSecret, transcript: bytes) -> tuple[bytes, bytes]:
    """Return the key for frames to the acceptor, and the key for frames to the connector."""
    to_acceptor = secret.prove(b"frames to acceptor", transcript)
    to_connector = secret.prove(b"frames to connector", transcript)
    return to_acceptor[:SEAL_KEY_BYTES], to_connector[:SEAL_KEY_BYTES]


def _without_secret(name: str, cluster: str) -> str:
    return f"{name} does not know the secret of cluster {cluster}: give it the same --secret-file"


def _expect(kind: type[M], message: Message) -> M:
    if isinstance(message, Failure):
        raise errors.PeerRefused(message.message)
    if not isinstance(message, kind):
        raise errors.ProtocolViolation(f"{kind.__name__} expected, {type(message).__name__} received")
    return message
