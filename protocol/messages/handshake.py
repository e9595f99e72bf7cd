"""The first words on a connection: each side proves that it knows the cluster's secret, or is a client.

`protocol.handshake` says them. Fields that were added have defaults, so that a peer of an earlier version is told
so, and not that it makes no sense.

A field with a default needs no new version: who does not know it ignores it. A version rises when a peer must not
say something to who would misunderstand it. The oldest that is spoken is that of the release before (decision 58).
"""

from __future__ import annotations

import msgspec

from .base import Message

#: The newest version that this side speaks. Since 6 agents send the ends of logs.
PROTOCOL_VERSION = 6
#: The oldest, which the release before speaks.
PROTOCOL_VERSION_OLDEST = 5


class Target(msgspec.Struct, frozen=True, array_like=True):
    """The peer that a connector expects: the role and name that it was given, and the address that it dialled."""

    role: str = ""
    name: str = ""
    #: As host:port, as it was told; and where that led, with a numeric host.
    address: str = ""
    reached: str = ""


class Hello(Message, frozen=True):
    """The connector's first word. `cluster` is empty when it does not know it yet.

    `version` is the oldest that it speaks: who knows no ranges wants its own there, and leaves `newest` 0.
    """

    version: int
    cluster: str
    role: str  # "client", "datanode", "agent" or "coordinator"
    name: str
    nonce: bytes
    target: Target = Target()
    #: The names of the secrets that it knows: none for a client.
    secrets: list[bytes] = []
    #: A client's credential for the user that it names, where names are not trusted.
    credential: str = ""
    newest: int = 0


class Challenge(Message, frozen=True):
    """The acceptor's answer, with its proof that it knows the `secret` of this name; none for a client.

    `version` is spoken from here on. `newest` is the acceptor's, told to who told its own.
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
    """The connector's proof; empty from clients, who know no secret and bring tokens instead."""

    proof: bytes


class Welcome(Message, frozen=True):
    """The connection is open. The first frame that is sealed, where frames are."""

    #: The name of the acceptor's local socket, for who is on its host; empty if there is none.
    local_socket: str = ""
