"""The first words on a connection: each side proves that it knows the cluster's secret, or is a client.

`protocol.hello` says them.
"""

from __future__ import annotations

from .base import Message

PROTOCOL_VERSION = 1


class Hello(Message, frozen=True):
    """The connector's first word. `cluster` is empty when it does not know it yet."""

    version: int
    cluster: str
    role: str  # "client", "datanode", "agent" or "coordinator"
    name: str
    nonce: bytes
    #: A client's bearer token, for the coordinator alone; empty without one.
    credential: str = ""


class Challenge(Message, frozen=True):
    """The acceptor's answer, with its proof that it knows the secret."""

    version: int
    cluster: str
    name: str
    nonce: bytes
    proof: bytes


class Proof(Message, frozen=True):
    """The connector's proof; empty from clients, who know no secret and bring tokens instead."""

    proof: bytes


class Welcome(Message, frozen=True):
    """The connection is open."""

    #: The name of the acceptor's local socket, for who is on its host; empty if there is none.
    local_socket: str = ""
