"""Credentials of datanodes: an id belongs to the first datanode that used it, with its key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
from support.new_core import new_core
from support.node_port import NodePort
from support.play import registration

from peacefs.coordinator.cluster.core import Cluster
from peacefs.coordinator.cluster.membership import State
from peacefs.protocol.credentials import Credential, proves_registration
from peacefs.protocol.messages import AllocateChunk, Failure, Heartbeat, Registered, ReportChunks, Usage

USAGE = Usage(1 << 40, 0, 1 << 40)


@pytest.fixture
def told() -> Callable[[Callable[[NodePort, Cluster], Coroutine[Any, Any, None]]], None]:
    def tell(story: Callable[[NodePort, Cluster], Coroutine[Any, Any, None]]) -> None:
        async def play() -> None:
            core = new_core()
            cluster = core.cluster
            cluster.loaded()
            async with NodePort(core, lambda: 1.0) as port:
                await asyncio.wait_for(story(port, cluster), 30)

        asyncio.run(play())

    return tell


def test_a_credential_proves_one_registration_over_one_connection() -> None:
    mine, another = Credential.make(), Credential.make()
    proof = mine.sign_registration("dn-1", b"what was said")
    assert proves_registration(mine.public_key, proof, "dn-1", b"what was said")
    for key, signature, node, said in (
        (another.public_key, proof, "dn-1", b"what was said"),
        (mine.public_key, proof, "dn-2", b"what was said"),
        (mine.public_key, proof, "dn-1", b"what was said over another connection"),
        (mine.public_key, b"", "dn-1", b"what was said"),
        (b"", proof, "dn-1", b"what was said"),
    ):
        assert not proves_registration(key, signature, node, said)
    assert Credential.from_pem(mine.to_pem()).public_key == mine.public_key


def test_a_datanode_is_enrolled_when_it_first_registers_and_known_by_its_key_from_then_on(told) -> None:
    async def story(port: NodePort, _cluster: Cluster) -> None:
        first = await port.datanode()
        assert isinstance(await first.register("p"), Registered)
        assert port.credentials.enrolled["dn-1"].public_key == first.credential.public_key
        again = await port.datanode()
        assert isinstance(await again.register("p"), Registered)

    told(story)


@pytest.mark.evidence("datanode-impersonated")
def test_an_id_that_has_a_key_is_not_given_to_another_who_knows_the_secret(told) -> None:
    async def story(port: NodePort, cluster: Cluster) -> None:
        await (await port.datanode()).register("p")
        impostor = await port.datanode(credential=Credential.make())
        refusal = await impostor.register("q")
        assert isinstance(refusal, Failure) and refusal.code == "CredentialRefused"
        assert "peacefs datanodes forget dn-1" in refusal.message and "\n" not in refusal.message
        assert await impostor.has_ended()
        node = cluster.members.get("dn-1")
        assert node is not None and node.registration.process == "p"

    told(story)


def test_first_datanode_of_two_at_once_gets_the_id(told) -> None:
    async def story(port: NodePort, _cluster: Cluster) -> None:
        both = [await port.datanode(credential=Credential.make()) for _ in range(2)]
        answers = await asyncio.gather(*(each.register("p") for each in both))
        assert sorted(type(answer).__name__ for answer in answers) == ["Failure", "Registered"]

    told(story)


def test_a_key_that_is_only_shown_and_not_proven_enrols_nobody(told) -> None:
    """The public key is no secret; a proof is valid only for one connection."""

    async def story(port: NodePort, _cluster: Cluster) -> None:
        known = Credential.make()
        for proof in (b"", b"x" * 64, known.sign_registration("dn-1", b"another connection")):
            stranger = await port.datanode()
            await stranger.shake_hands()
            shown = registration("dn-1")
            stranger.say(msgspec.structs.replace(shown, public_key=known.public_key, proof=proof))
            refusal = (await stranger.receive()).message
            assert isinstance(refusal, Failure) and refusal.code == "CredentialRefused"
        assert not port.credentials.enrolled

    told(story)


def test_a_datanode_that_is_revoked_is_dead_at_once_and_stays_out_until_it_is_readmitted(told) -> None:
    async def story(port: NodePort, cluster: Cluster) -> None:
        datanode = await port.datanode()
        await datanode.register("p")
        await port.credentials.revoke("dn-1")
        node = cluster.members.get("dn-1")
        assert node is not None and node.state is State.DEAD
        datanode.say(Heartbeat(USAGE))
        port.hang_up("dn-1")
        assert await datanode.has_ended()
        back = await port.datanode()
        refusal = await back.register("p")
        assert isinstance(refusal, Failure) and "peacefs datanodes readmit dn-1" in refusal.message
        await port.credentials.readmit("dn-1")
        assert isinstance(await (await port.datanode()).register("p"), Registered)

    told(story)


def test_a_datanode_whose_key_is_forgotten_is_enrolled_with_the_next_that_it_shows(told) -> None:
    async def story(port: NodePort, _cluster: Cluster) -> None:
        await (await port.datanode()).register("p")
        await port.credentials.forget("dn-1")
        port.hang_up("dn-1")
        another = await port.datanode(credential=Credential.make())
        assert isinstance(await another.register("q"), Registered)
        assert port.credentials.enrolled["dn-1"].public_key == another.credential.public_key

    told(story)


def test_unregistered_datanode_asks_for_nothing(told) -> None:
    """Knowing the secret is not enough: otherwise one could speak with a revoked id."""

    async def story(port: NodePort, _cluster: Cluster) -> None:
        for message in (AllocateChunk("token", [], None), ReportChunks([], last=True)):
            stranger = await port.datanode()
            await stranger.shake_hands()
            stranger.say(message, 7)
            answer = (await stranger.receive()).message
            assert isinstance(answer, Failure) or type(answer).__name__ == "ReportAgain"

    told(story)
