"""Who accepts a connection judges for itself: a connector of ill will does not check whom it is talking to."""

from __future__ import annotations

import pytest

from peacefs.protocol.errors import PeerRefused
from peacefs.protocol.handshake import Identity, Peer, accepting
from peacefs.protocol.messages import PROTOCOL_VERSION, Challenge, Hello, Proof, Welcome
from peacefs.protocol.tokens import Signer

OUR_SIGNER = Signer(b"the secret of this cluster")
US = Identity("ours", "datanode", "dn-1", OUR_SIGNER)
THEIR_NONCE, OUR_NONCE = b"t" * 16, b"o" * 16


def accepted(cluster: str, role: str, signer: Signer | None) -> Peer:
    """What the acceptor makes of one that goes on whatever it is challenged with."""
    talk = accepting(US, OUR_NONCE, Hello(PROTOCOL_VERSION, cluster, role, "stranger", THEIR_NONCE))
    challenge = next(talk)
    assert isinstance(challenge, Challenge)
    proof = signer.hello_proof(b"connector", THEIR_NONCE, OUR_NONCE) if signer else b""
    assert isinstance(talk.send(Proof(proof)), Welcome)
    with pytest.raises(StopIteration) as end:
        next(talk)
    peer = end.value.value
    assert isinstance(peer, Peer)
    return peer


@pytest.mark.parametrize("role", ["datanode", "agent", "coordinator"])
def test_a_service_is_let_in_by_the_secret_alone(role: str) -> None:
    assert accepted("ours", role, OUR_SIGNER).trusted
    for signer in (None, Signer(b"guessed")):
        with pytest.raises(PeerRefused, match="does not know the secret"):
            accepted("ours", role, signer)


def test_a_client_is_let_in_without_it_and_not_trusted() -> None:
    assert not accepted("ours", "client", None).trusted


@pytest.mark.parametrize("role", ["datanode", "client"])
def test_who_is_of_another_cluster_is_refused_even_with_the_same_secret(role: str) -> None:
    with pytest.raises(PeerRefused, match="belongs to cluster ours"):
        accepted("theirs", role, OUR_SIGNER)
