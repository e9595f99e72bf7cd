"""The first messages on a connection, with which both sides authenticate.

`protocol.handshake` exchanges them. New fields have defaults, so that messages of earlier versions can be decoded
and such a peer gets a clear refusal.

A new field with a default needs no new version, because older peers ignore it. The version is raised if older
peers would misunderstand a message. The oldest supported version is that of the previous release (decision 58).
"""

from __future__ import annotations

import msgspec

from .base import Message

#: The newest version that this side supports. Since version 6, agents send the ends of logs.
PROTOCOL_VERSION = 6
#: The oldest version that this side supports, which is that of the previous release.
PROTOCOL_VERSION_OLDEST = 5


class Target(msgspec.Struct, frozen=True, array_like=True):
    """The peer that a connector expects: its role, its name, and the address that was dialled."""

    role: str = ""
    name: str = ""
    #: The dialled address as host:port, and the address that it resolved to, with a numeric host.
    address: str = ""
    reached: str = ""


class Hello(Message, frozen=True):
    """The connector's first message. `cluster` is empty if it does not know the cluster yet.

    `version` is the oldest version that it supports, `newest` the newest one. A connector that does not know
    version ranges sends its only version as `version`, and 0 as `newest`.
    """

    version: int
    cluster: str
    role: str  # "client", "datanode", "agent" or "coordinator"; "node" or "beats" of a dataflow
    name: str
    nonce: bytes
    target: Target = Target()
    #: The names of the secrets that it knows; empty for a client.
    secrets: list[bytes] = []
    #: A client's credential for its user, if the cluster authenticates callers.
    credential: str = ""
    newest: int = 0


class Challenge(Message, frozen=True):
    """The acceptor's answer, with its proof that it knows the secret named `secret`; both are empty for a client.

    `version` is used from here on. `newest` is the acceptor's newest version, or 0 if the Hello had none.
    """

    version: int
    cluster: str
    name: str
    nonce: bytes
    proof: bytes
    role: str = ""
    secret: bytes = b""
    newest: int = 0


class Proof(Message, frozen=True):
    """The connector's proof; empty from clients, which use tokens instead of the secret."""

    proof: bytes


class Welcome(Message, frozen=True):
    """The connection is open. This is the first sealed frame, unless TLS is used or the peer is a client."""

    #: The name of the acceptor's local socket, for peers on its host; empty if there is none.
    local_socket: str = ""
