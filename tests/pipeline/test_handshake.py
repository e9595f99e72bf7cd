"""Each side of the handshake with an attacker that invents messages or relays another's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from support.spoken_link import told_by

from peacefs.protocol.errors import PeerRefused
from peacefs.protocol.handshake import SPOKEN, Identity, Peer, SpokenVersions, accepting, connecting
from peacefs.protocol.messages import (
    PROTOCOL_VERSION,
    PROTOCOL_VERSION_OLDEST,
    Challenge,
    Failure,
    Hello,
    Message,
    Proof,
    Target,
)
from peacefs.protocol.tokens import Signer

SIGNER = Signer(b"the secret of this cluster")
GATEWAY = Identity("ours", "datanode", "dn-7", SIGNER)
NODE = Identity("ours", "datanode", "dn-1", SIGNER, addresses=("node.example:9866",))
COORDINATOR = Identity("ours", "coordinator", "coordinator", SIGNER, addresses=("names.example:9820",))
TO_NODE = Target("datanode", "dn-1", "node.example:9866", "10.0.0.1:9866")
TO_COORDINATOR = Target("coordinator", "coordinator", "names.example:9820", "10.0.0.9:9820")

#: An attacker's change of relayed messages.
Change = Callable[[Message], Message]


def as_it_is(message: Message) -> Message:
    return message


def met(
    connector: Identity,
    acceptor: Identity,
    target: Target,
    *,
    down: Change = as_it_is,
    up: Change = as_it_is,
    channels: tuple[bytes, bytes] = (b"", b""),
) -> tuple[Peer, Peer]:
    """Return each side's view of the other, with an attacker in between. Raise PeerRefused of either side."""
    theirs = connecting(connector, b"c" * 16, target=target, channel=channels[0])
    ours = accepting(acceptor, b"a" * 16, down(next(theirs)), channel=channels[1], reached="10.0.0.1:9866")
    met_by_connector = told_by(theirs, up(next(ours)))
    return met_by_connector, told_by(ours, down(met_by_connector.last_word))


def said_as(**fields: object) -> Change:
    """Change fields of a Hello or Challenge, if it has them."""

    def change(message: Message) -> Message:
        known = {name: value for name, value in fields.items() if name in message.__struct_fields__}
        return msgspec.structs.replace(message, **known) if isinstance(message, Hello | Challenge) else message

    return change


def test_services_that_mean_each_other_agree_on_keys() -> None:
    node, gateway = met(GATEWAY, NODE, TO_NODE)
    assert (node.role, node.name, gateway.role, gateway.name) == ("datanode", "dn-1", "datanode", "dn-7")
    assert node.trusted and gateway.trusted
    assert node.frame_keys and gateway.frame_keys
    assert node.frame_keys.sending == gateway.frame_keys.receiving != node.frame_keys.receiving
    assert node.frame_keys.receiving == gateway.frame_keys.sending


@pytest.mark.parametrize("address", ["node.example:9866", "10.0.0.1:9866"])
def test_a_service_is_meant_by_what_it_advertises_or_by_where_the_connection_ends(address: str) -> None:
    assert met(GATEWAY, NODE, Target("datanode", "dn-1", "a.name:1", address))[1].trusted
    assert met(GATEWAY, NODE, Target("datanode", "dn-1", address, "192.0.2.1:1"))[1].trusted


@pytest.mark.parametrize(
    ("meant", "answers"),
    [
        # A relay: the gateway connects to a stranger, which relays its messages to a service with the secret.
        (TO_NODE, COORDINATOR),
        (Target("datanode", "dn-1", "evil.example:1", "192.0.2.1:1"), COORDINATOR),
        (Target("datanode", "dn-1", "evil.example:1", "192.0.2.1:1"), NODE),
        (Target("datanode", "dn-2", "node.example:9866", "10.0.0.1:9866"), NODE),
        (Target("coordinator", "dn-1", "node.example:9866", "10.0.0.1:9866"), NODE),
        (Target("coordinator", "coordinator", "evil.example:1", "192.0.2.1:1"), COORDINATOR),
    ],
)
def test_peer_that_is_not_meant_refuses(meant: Target, answers: Identity) -> None:
    with pytest.raises(PeerRefused):
        met(GATEWAY, answers, meant)


@pytest.mark.parametrize(
    "lie",
    [
        {"target": TO_COORDINATOR, "role": "datanode"},
        {"target": TO_COORDINATOR, "name": "dn-of-the-attacker"},
        {"target": TO_COORDINATOR, "role": "agent"},
    ],
)
@pytest.mark.evidence("handshake-relayed")
def test_relay_under_other_names_gets_no_proof(lie: dict[str, object]) -> None:
    """The relay changes the greeting so that the coordinator answers, and changes the answer, too."""
    evil = Target("datanode", "dn-1", "evil.example:1", "192.0.2.1:1")
    mend = said_as(role="datanode", name="dn-1")
    with pytest.raises(PeerRefused, match="does not know the secret"):
        met(GATEWAY, COORDINATOR, evil, down=said_as(**lie), up=mend)


@pytest.mark.parametrize(
    "change",
    [{"version": PROTOCOL_VERSION}, {"cluster": ""}, {"nonce": b"x" * 16}, {"credential": "another"}],
    ids=lambda change: next(iter(change)),
)
def test_a_greeting_that_is_changed_on_its_way_ends_in_a_refusal(change: dict[str, object]) -> None:
    changed = dict(change, name="dn-8") if "version" in change else change
    with pytest.raises(PeerRefused):
        met(GATEWAY, NODE, TO_NODE, down=said_as(**changed))


@pytest.mark.evidence("foreign-directory")
def test_peer_of_another_cluster_is_refused_even_with_the_same_secret() -> None:
    for connector, acceptor in ((GATEWAY, replace(NODE, cluster="theirs")), (replace(GATEWAY, cluster="x"), NODE)):
        with pytest.raises(PeerRefused, match="belongs to cluster"):
            met(connector, acceptor, TO_NODE)
    with pytest.raises(PeerRefused, match="does not know the secret"):
        met(
            GATEWAY, replace(NODE, cluster="theirs"), TO_NODE, down=said_as(cluster=""), up=said_as(cluster="ours")
        )


@pytest.mark.evidence("handshake-relayed")
def test_a_proof_that_is_shown_back_proves_nothing() -> None:
    """Echoing a challenge does not prove knowledge of the secret."""
    theirs = connecting(GATEWAY, b"c" * 16, target=TO_NODE)
    ours = accepting(NODE, b"a" * 16, next(theirs), reached="10.0.0.1:9866")
    challenge = next(ours)
    assert isinstance(challenge, Challenge)
    with pytest.raises(PeerRefused, match="does not know the secret"):
        ours.send(Proof(challenge.proof))


def test_an_acceptor_that_is_asked_its_own_words_is_not_its_own_peer() -> None:
    """The attacker opens two connections to one service, and lets it answer itself."""
    first = connecting(NODE, b"c" * 16, target=Target("datanode", "dn-1", "node.example:9866", ""))
    ours = accepting(NODE, b"a" * 16, next(first), reached="10.0.0.1:9866")
    other = accepting(NODE, b"b" * 16, next(connecting(NODE, b"c" * 16, target=TO_NODE)), reached="10.0.0.1:9866")
    next(other)
    proof = told_by(first, next(ours)).last_word
    with pytest.raises(PeerRefused, match="does not know the secret"):
        other.send(proof)


def test_words_of_an_earlier_connection_open_none() -> None:
    theirs = connecting(GATEWAY, b"c" * 16, target=TO_NODE)
    hello = next(theirs)
    ours = accepting(NODE, b"a" * 16, hello, reached="10.0.0.1:9866")
    proof = told_by(theirs, next(ours)).last_word
    again = accepting(NODE, b"another nonce   ", hello, reached="10.0.0.1:9866")
    next(again)
    with pytest.raises(PeerRefused, match="does not know the secret"):
        again.send(proof)


@pytest.mark.parametrize("role", ["datanode", "agent", "coordinator"])
def test_a_service_is_let_in_by_the_secret_alone(role: str) -> None:
    assert met(replace(GATEWAY, role=role), NODE, TO_NODE)[1].trusted
    for signer in (None, Signer(b"guessed")):
        with pytest.raises(PeerRefused, match="does not know the secret"):
            met(replace(GATEWAY, role=role, signer=signer), NODE, TO_NODE)


def test_a_service_that_guesses_the_name_of_the_secret_gets_no_further() -> None:
    """The name of a secret is in every greeting, and reveals nothing else."""
    name = SIGNER.handshake_secrets[0].name
    for proof in (b"", b"x" * 32, name):
        guessed = Hello(PROTOCOL_VERSION, "ours", "datanode", "dn-9", b"n" * 16, TO_NODE, [name])
        ours = accepting(NODE, b"a" * 16, guessed, reached="10.0.0.1:9866")
        next(ours)
        with pytest.raises(PeerRefused, match="does not know the secret"):
            ours.send(Proof(proof))


def test_a_client_is_let_in_without_it_and_not_trusted() -> None:
    client = Identity("", "client", "test", None, credential="a bearer token")
    node, peer = met(client, NODE, replace_target("somewhere.else:1"))
    assert not peer.trusted and peer.frame_keys is None
    assert not node.trusted and node.frame_keys is None
    assert peer.credential == "a bearer token"
    assert "bearer" not in repr(peer) + repr(client)


def replace_target(address: str) -> Target:
    return msgspec.structs.replace(TO_NODE, address=address, reached="192.0.2.1:1")


def test_a_client_that_means_another_datanode_is_told_so() -> None:
    with pytest.raises(PeerRefused, match="dn-2"):
        met(Identity("", "client", "test", None), NODE, Target("datanode", "dn-2", "node.example:9866", ""))


def test_a_connection_in_tls_is_bound_to_its_certificate_and_is_not_sealed_twice() -> None:
    node, gateway = met(GATEWAY, NODE, TO_NODE, channels=(b"certificate", b"certificate"))
    assert node.trusted and node.frame_keys is None and gateway.frame_keys is None
    for channels in ((b"certificate", b"another"), (b"certificate", b""), (b"", b"certificate")):
        with pytest.raises(PeerRefused, match="does not know the secret"):
            met(GATEWAY, NODE, TO_NODE, channels=channels)


def test_a_secret_is_replaced_while_services_go_on() -> None:
    """First all services verify with the new one, then all sign with it, then the old one is removed."""
    old, new = b"the secret of before", b"the secret of later"
    steps = [Signer(old), Signer(old, new), Signer(new, old), Signer(new)]
    for here, there in itertools.pairwise(steps):
        for ours, theirs in ((here, there), (there, here)):
            assert met(replace(GATEWAY, signer=ours), replace(NODE, signer=theirs), TO_NODE)[1].trusted
            receipt = ours.receipt("dn-1", 1, 2, 3, 4)
            theirs.verify_receipt(receipt, 1, 2, 3, 4)
    with pytest.raises(PeerRefused, match="does not know the secret"):
        met(replace(GATEWAY, signer=steps[0]), replace(NODE, signer=steps[3]), TO_NODE)


@pytest.mark.parametrize(
    ("connector", "acceptor", "spoken"),
    [((5, 6), (5, 6), 6), ((5, 6), (6, 7), 6), ((6, 7), (5, 6), 6), ((5, 5), (5, 6), 5), ((5, 6), (5, 5), 5)],
)
def test_version_that_both_speak_is_the_newest_they_have_in_common(
    connector: tuple[int, int], acceptor: tuple[int, int], spoken: int
) -> None:
    peers = met(
        replace(GATEWAY, versions=SpokenVersions(*connector)),
        replace(NODE, versions=SpokenVersions(*acceptor)),
        TO_NODE,
    )
    assert [peer.version for peer in peers] == [spoken, spoken]
    assert peers[0].transcript == peers[1].transcript


@pytest.mark.parametrize(("connector", "acceptor"), [((5, 6), (7, 8)), ((7, 8), (5, 6))])
def test_version_two_releases_apart_is_refused_with_both_ranges(
    connector: tuple[int, int], acceptor: tuple[int, int]
) -> None:
    with pytest.raises(PeerRefused) as refused:
        met(
            replace(GATEWAY, versions=SpokenVersions(*connector)),
            replace(NODE, versions=SpokenVersions(*acceptor)),
            TO_NODE,
        )
    older = "dn-7" if connector < acceptor else "dn-1"
    assert refused.value.message == (
        "dn-1 speaks protocol version {} to {}, dn-7 {} to {}: ".format(*acceptor, *connector)
        + f"upgrade peacefs where {older} runs"
    )


def test_version_of_a_peer_that_knows_no_ranges_is_its_own() -> None:
    """Its Hello and Challenge have no `newest`, and it ignores ours: the proofs cover the common fields."""
    peers = met(GATEWAY, NODE, TO_NODE, down=said_as(newest=0))
    assert [peer.version for peer in peers] == [PROTOCOL_VERSION_OLDEST] * 2
    assert peers[0].trusted and peers[1].trusted and peers[0].transcript == peers[1].transcript
    theirs = connecting(GATEWAY, b"c" * 16, target=TO_NODE)
    next(theirs)
    with pytest.raises(PeerRefused, match=r"dn-1 speaks protocol version 7, this side 5 to 6: .* this one runs"):
        theirs.send(Challenge(7, "ours", "dn-1", b"n" * 16, b""))


def test_version_that_is_changed_on_its_way_ends_in_a_refusal() -> None:
    """An attacker cannot make two new sides use an old version by lowering the offered one."""
    for change in ({"newest": 5}, {"newest": 7}):
        with pytest.raises(PeerRefused, match="does not know the secret"):
            met(GATEWAY, NODE, TO_NODE, down=said_as(**change))


def test_a_version_that_is_not_ours_is_told_both_numbers_in_one_line() -> None:
    class EarlierHello(Message, frozen=True, tag="Hello"):
        version: int
        cluster: str
        role: str
        name: str
        nonce: bytes

    earlier = msgspec.msgpack.encode(EarlierHello(1, "ours", "datanode", "dn-9", b"n" * 16))
    with pytest.raises(PeerRefused) as refused:
        next(accepting(NODE, b"a" * 16, msgspec.msgpack.decode(earlier, type=Hello), reached="10.0.0.1:9866"))
    assert refused.value.message == (
        f"dn-1 speaks protocol version {SPOKEN}, dn-9 1: upgrade peacefs where dn-9 runs"
    )
    theirs = connecting(GATEWAY, b"c" * 16, target=TO_NODE)
    next(theirs)
    with pytest.raises(PeerRefused, match=r"dn-9 speaks protocol version 1, .*upgrade peacefs where dn-9 runs"):
        theirs.send(Challenge(1, "ours", "dn-9", b"n" * 16, b""))
    theirs = connecting(GATEWAY, b"c" * 16, target=TO_NODE)
    next(theirs)
    with pytest.raises(PeerRefused, match="speaks protocol version 1"):
        theirs.send(Failure("PeerRefused", "dn-1 speaks protocol version 1, dn-7 2"))
