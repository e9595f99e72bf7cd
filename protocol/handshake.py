"""The handshake: both sides of a new connection find out who the other one is, before anything else.

    connector                                        acceptor
    Hello(version, cluster, role, name, target, nonce) ->
                                          <- Challenge(version, cluster, role, name, nonce, proof)  or Failure
    Proof(proof)                         ->
                                          <- Welcome                                                or Failure

Services prove with the cluster secret, each to the other. A proof covers the whole of Hello and Challenge:
protocol version, cluster, both roles and names, whom the connector means and by which address, both nonces; and
the `channel`, if the connection is TLS. The acceptor refuses to be taken for another, and proves first: a
connector shows its proof to the one alone that it means, and whoever passes the words of a handshake on gets
nothing. From the same words keys are derived, with which all later frames are sealed (`seals`).

A client knows no secret: it sends an empty proof and may then only make requests that carry a token.

Each side speaks a range of versions, and both speak the newest that they have in common (decision 58). Where there
is none, the refusal says on which side peacefs is to be upgraded.

Written once, without I/O: `connecting` and `accepting` are generators of messages to send, resumed with the
message received. Each ends with its `Peer`, whose `last_word` is still to be sent: a Proof as it is, after which
all that comes is sealed; a Welcome sealed.
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
_ROLES = ("client", "datanode", "agent", "coordinator")
#: The one that has no name but its role.
COORDINATOR: Final = "coordinator"


@dataclass(frozen=True)
class SpokenVersions:
    """The protocol versions that a side speaks, both ends included."""

    oldest: int
    newest: int

    def __str__(self) -> str:
        return f"{self.newest}" if self.oldest == self.newest else f"{self.oldest} to {self.newest}"

    def newest_common(self, other: SpokenVersions) -> int | None:
        """Return the version that two sides speak with each other; None if there is none."""
        common = min(self.newest, other.newest)
        return common if common >= max(self.oldest, other.oldest) else None


#: The versions of this release.
SPOKEN: Final = SpokenVersions(PROTOCOL_VERSION_OLDEST, PROTOCOL_VERSION)


@dataclass(frozen=True)
class Identity:
    """A participant's identity on the wire. `signer` is None for clients; `cluster` is empty until known.

    `local_socket` is the name of the one by which processes of its host reach it besides; `addresses` are those by
    which all others do, as host:port, besides the ones that its sockets are bound to. A client shows `credential`
    for the user that it names.
    """

    cluster: str
    role: str
    name: str
    signer: Signer | None
    local_socket: str = ""
    addresses: Collection[str] = ()
    credential: str = field(default="", repr=False)
    versions: SpokenVersions = SPOKEN


@dataclass(frozen=True)
class Peer:
    """The identity of the other side. Only `trusted` peers have shown that they know the secret."""

    cluster: str
    role: str
    name: str
    trusted: bool
    #: The message that is still to be sent to it.
    last_word: Proof | Welcome
    #: None where TLS protects what is sent, and for clients.
    frame_keys: FrameKeys | None = None
    #: Derived from the whole handshake: no other connection has the same.
    transcript: bytes = b""
    credential: str = field(default="", repr=False)
    #: The protocol version that both sides speak.
    version: int = PROTOCOL_VERSION


def connecting(
    me: Identity, nonce: bytes, *, target: Target, channel: bytes = b""
) -> Generator[Message, Message, Peer]:
    """The connector's side. Raises PeerRefused when the acceptor says no or is not the one that is meant."""
    secrets = [] if me.signer is None else [secret.name for secret in me.signer.handshake_secrets]
    oldest, newest = me.versions.oldest, me.versions.newest
    hello = Hello(oldest, me.cluster, me.role, me.name, nonce, target, secrets, me.credential, newest)
    challenge = _expect(Challenge, (yield hello))
    _check_challenge(me, challenge, target)
    # An acceptor that knows no ranges has not seen ours.
    heard = hello if challenge.newest else msgspec.structs.replace(hello, newest=0)
    transcript = _transcript(heard, challenge, channel)
    keys, proof = None, b""
    if me.signer is not None:
        secret = me.signer.handshake_secret([challenge.secret])
        if secret is None or not hmac.compare_digest(secret.prove(b"acceptor", transcript), challenge.proof):
            # Or the other end has another, but this one is more likely to have come later.
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
    """Return the answer to the connector's Proof. Raises PeerRefused when the acceptor says no."""
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
    """The acceptor's side, begun with the first message; `reached` is this end of the connection, as host:port.

    Raises PeerRefused, which the shell sends as Failure before it closes.
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
    """Return the version that both will speak. Raises PeerRefused."""
    theirs = _versions_of(hello)
    version = me.versions.newest_common(theirs)
    if version is None:
        raise errors.PeerRefused(
            f"{me.name} speaks protocol version {me.versions}, {hello.name} {theirs}: "
            f"{_what_to_upgrade(me.versions, theirs, hello.name, me.name)}"
        )
    if hello.role not in _ROLES:
        raise errors.PeerRefused(f"unknown role {hello.role!r}")
    if hello.cluster and me.cluster and hello.cluster != me.cluster:
        raise errors.PeerRefused(f"{me.name} belongs to cluster {me.cluster}, {hello.name} to {hello.cluster}")
    target = hello.target
    if (target.role, target.name) != (me.role, me.name):
        raise errors.PeerRefused(
            f"{hello.name} means {target.role} {target.name}, this is {me.role} {me.name}: "
            "another service has had this address, or what was said to another one was passed on"
        )
    # Clients prove nothing, and may come through a tunnel or another port.
    if hello.role != "client" and not {target.address, target.reached} & {*me.addresses, reached}:
        raise errors.PeerRefused(
            f"{me.name} was reached as {target.address} ({target.reached}), which is not an address of it: "
            f"start it with --advertise and the host by which others reach it"
        )
    return version


def _transcript(hello: Hello, challenge: Challenge, channel: bytes) -> bytes:
    """All that was said, but for the proofs, in a form that only these words have."""
    said = (b"peacefs handshake", hello, msgspec.structs.replace(challenge, proof=b""), channel)
    return hashlib.sha256(msgspec.msgpack.encode(said)).digest()


def _frame_keys(secret: HandshakeSecret, transcript: bytes) -> tuple[bytes, bytes]:
    """For what the connector sends, and for what the acceptor does."""
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
