"""The real handshake between two simulated machines, and the authentication of what they send afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Generator

from simulation.terms import SIGNER

from peacefs.protocol.handshake import Identity, Peer, accepting, connecting
from peacefs.protocol.messages import Message, Target
from peacefs.runtime.effects import Address
from peacefs.runtime.local_sockets import show_address

_CLUSTER = "simulated"
_nonces = itertools.count()


def greet(connector: str, *, is_service: bool, meant: str, address: Address, acceptor: str) -> tuple[Peer, Peer]:
    """Run the handshake; return the results of the connector and the acceptor. Raises PeerRefused."""
    role, signer = ("datanode", SIGNER) if is_service else ("client", None)
    me = Identity(_CLUSTER if is_service else "", role, connector, signer)
    there = Identity(_CLUSTER, "datanode", acceptor, SIGNER, addresses=(show_address(address),))
    asks = connecting(me, _nonce(), target=Target("datanode", meant, show_address(address)))
    answers = accepting(there, _nonce(), next(asks))
    acceptor_as_met = _end(asks, next(answers))
    return acceptor_as_met, _end(answers, acceptor_as_met.last_word)


def _nonce() -> bytes:
    return next(_nonces).to_bytes(16, "big")


def _end(talk: Generator[Message, Message, Peer], message: Message) -> Peer:
    try:
        talk.send(message)
    except StopIteration as end:
        peer: Peer = end.value
        return peer
    raise AssertionError("a side of the handshake asks once")
