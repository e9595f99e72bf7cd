"""The coordinator's port for datanodes with peers that are silent, flooding, late, or impostors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from support.new_core import new_core
from support.node_port import NodePort
from support.play import USAGE, record
from support.spoken_link import Datanode

from peacefs.coordinator.limits import suspect_after_s
from peacefs.coordinator.rpc import server as node_server
from peacefs.protocol.limits import handshake_frame_bytes_max
from peacefs.protocol.messages import (
    Done,
    Failure,
    Heartbeat,
    HeartbeatAck,
    Hello,
    Registered,
    Replica,
    ReportAgain,
    ReportChunks,
    Trust,
)

_CHUNK = 77


class Coordinator:
    """A cluster and its port, with a clock that the test moves."""

    def __init__(self, *, loaded: bool = True) -> None:
        self.now_s = 100.0
        core = new_core(self.now_s)
        self.cluster = core.cluster
        if loaded:
            self.load()
        self.port = NodePort(core, lambda: self.now_s)

    def load(self) -> None:
        self.cluster.load([record(_CHUNK, replication=1)])
        self.cluster.loaded()

    async def datanode(self, name: str = "dn-1") -> Datanode:
        return await self.port.datanode(name)

    @property
    def replicas(self) -> int:
        return self.cluster.chunks.held_by("dn-1")


async def anything_else() -> None:
    """Let the loop run everything that is ready."""
    await asyncio.sleep(0)


def tell(story: Callable[[Coordinator], Coroutine[Any, Any, None]], *, loaded: bool = True) -> None:
    async def play() -> None:
        coordinator = Coordinator(loaded=loaded)
        async with coordinator.port, asyncio.timeout(20):
            await story(coordinator)

    asyncio.run(play())


@pytest.mark.evidence("silent-connections")
def test_silent_connections_keep_no_datanode_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_server, "handshakes_waiting_max", 3)

    async def story(coordinator: Coordinator) -> None:
        first = await coordinator.datanode()
        silent = [await coordinator.datanode() for _ in range(20)]
        assert await first.has_ended(), "the longest silent one goes"
        assert isinstance(await (await coordinator.datanode()).register(), Registered)
        ended = [await connection.has_ended() for connection in silent[:17]]
        assert all(ended)

    tell(story)


@pytest.mark.evidence("announced-frame")
def test_a_stranger_costs_no_more_memory_than_a_hello() -> None:
    async def story(coordinator: Coordinator) -> None:
        stranger = await coordinator.datanode()
        stranger.say(Hello(1, "c", "datanode", "x" * handshake_frame_bytes_max, b"n" * 16))
        answer = (await stranger.receive()).message
        assert isinstance(answer, Failure) and "over the limit" in answer.message
        assert await stranger.has_ended()
        datanode = await coordinator.datanode()
        await datanode.register()
        many = [Replica(number, 1, 10) for number in range(1000, 1500)]
        datanode.say(ReportChunks(many, last=True))
        assert isinstance((await datanode.receive()).message, Done), "who is known may say more at once"

    tell(story)


@pytest.mark.evidence("chunk-map-is-true")
def test_earlier_link_changes_nothing_by_what_it_still_brings() -> None:
    """A heartbeat was delayed, or queued, when its datanode registered again."""

    async def story(coordinator: Coordinator) -> None:
        before, after = await coordinator.datanode(), await coordinator.datanode()
        await before.register("p")
        await after.register("p")
        after.say(ReportChunks([], last=True))
        assert isinstance((await after.receive()).message, Done)
        with suppress(ConnectionError):
            before.say(Heartbeat(USAGE, added=[Replica(_CHUNK, 1, 1000)]))
            await before.writer.drain()
        assert await before.has_ended()
        after.say(Heartbeat(USAGE))
        assert isinstance((await after.receive()).message, HeartbeatAck)
        assert coordinator.replicas == 0

    tell(story)


@pytest.mark.evidence("chunk-map-is-true")
def test_messages_before_registering_are_not_taken_in() -> None:
    async def story(coordinator: Coordinator) -> None:
        here, elsewhere = await coordinator.datanode(), await coordinator.datanode("dn-2")
        await here.register("p")
        await elsewhere.register("q")
        silent = await coordinator.datanode()
        await silent.shake_hands()
        silent.say(ReportChunks([Replica(_CHUNK, 1, 1000)], last=True))
        assert isinstance((await silent.receive()).message, ReportAgain)
        assert coordinator.replicas == 0

    tell(story)


@pytest.mark.evidence("copied-directory")
def test_second_datanode_with_an_id_is_told() -> None:
    async def story(coordinator: Coordinator) -> None:
        first, second = await coordinator.datanode(), await coordinator.datanode()
        await first.register("one")
        answer = await second.register("another")
        assert isinstance(answer, Failure) and answer.code == "NodeIdTaken"
        assert "copy of another datanode's" in answer.message
        assert await second.has_ended()
        first.say(ReportChunks([Replica(_CHUNK, 1, 1000)], last=True))
        assert isinstance((await first.receive()).message, Done)
        assert coordinator.replicas == 1, "the first goes on"

    tell(story)


@pytest.mark.parametrize("process", ["one", "another"])
@pytest.mark.evidence("copied-directory")
def test_a_datanode_comes_back_past_its_own_broken_link(process: str) -> None:
    """The same process reconnects at once; after a restart, as soon as the old link counts as broken."""

    async def story(coordinator: Coordinator) -> None:
        first, second = await coordinator.datanode(), await coordinator.datanode()
        await first.register("one")
        coordinator.now_s += 0.0 if process == "one" else suspect_after_s
        assert isinstance(await second.register(process), Registered)
        assert await first.has_ended()

    tell(story)


@pytest.mark.evidence("trickling-request")
def test_a_datanode_that_sends_a_frame_byte_by_byte_holds_nobody_up() -> None:
    async def story(coordinator: Coordinator) -> None:
        slow, quick = await coordinator.datanode("dn-2"), await coordinator.datanode()
        await slow.register("s")
        await quick.register("q")
        frame = slow.sealed(Heartbeat(USAGE))
        began_s = time.monotonic()
        for byte in frame:
            slow.writer.write(bytes([byte]))
            await slow.writer.drain()
            quick.say(Heartbeat(USAGE))
            assert isinstance((await quick.receive()).message, HeartbeatAck)
        assert isinstance((await slow.receive()).message, HeartbeatAck)
        assert time.monotonic() - began_s < 60

    tell(story)


def test_malformed_frame_ends_the_link_and_no_other() -> None:
    async def story(coordinator: Coordinator) -> None:
        good, bad = await coordinator.datanode(), await coordinator.datanode("dn-2")
        await good.register("g")
        await bad.register("b")
        bad.writer.write(b"\xff" * 100)
        answer = (await bad.receive()).message
        assert isinstance(answer, Failure) and answer.code == "BrokenSeal"
        assert await bad.has_ended()
        good.say(Heartbeat(USAGE))
        assert isinstance((await good.receive()).message, HeartbeatAck)

    tell(story)


def test_datanode_that_comes_during_the_load_reports_when_all_chunks_are_known() -> None:
    """Before that, all its replicas would count as unreferenced, which takes much more memory."""

    async def story(coordinator: Coordinator) -> None:
        datanode, impostor = await coordinator.datanode(), await coordinator.datanode()
        registering = asyncio.create_task(datanode.register("p"))
        while not coordinator.port.waiting and not registering.done():
            await anything_else()
        assert not registering.done() and coordinator.cluster.members.get("dn-1") is None
        following = asyncio.create_task(impostor.register("another"))
        while coordinator.port.waiting < 2:
            await anything_else()
        coordinator.now_s += 3 * suspect_after_s
        coordinator.load()
        coordinator.port.chunks_loaded()
        assert isinstance(await registering, Registered)
        refused = await following
        assert isinstance(refused, Failure) and refused.code == "NodeIdTaken"
        datanode.say(ReportChunks([Replica(_CHUNK, 1, 1000)], last=True))
        assert isinstance((await datanode.receive()).message, Done)
        assert coordinator.replicas == 1 and not len(coordinator.cluster.chunks.unreferenced)
        assert coordinator.port.waiting == 0

    tell(story, loaded=False)


def test_datanode_that_came_while_nobody_led_is_told_the_keys_by_who_leads_then() -> None:
    """A datanode accepts keys only from a leader. Without keys it refuses all requests to its gateway."""

    async def story(coordinator: Coordinator) -> None:
        coordinator.port.leadership.leads = False
        datanode = await coordinator.datanode()
        registered = await datanode.register("f")
        assert isinstance(registered, Registered) and not registered.leads
        datanode.say(Heartbeat(USAGE))
        assert isinstance(told := (await datanode.receive()).message, HeartbeatAck) and not told.leads
        coordinator.port.leadership.leads = True
        datanode.say(Heartbeat(USAGE))
        told = (await datanode.receive()).message
        assert isinstance(told, HeartbeatAck) and told.leads and told.trust == Trust()

    tell(story)


def test_new_keys_are_told_to_all_datanodes_before_their_next_heartbeat() -> None:
    """A token signed with a new key may reach a datanode before its next heartbeat."""

    async def story(coordinator: Coordinator) -> None:
        first, second = await coordinator.datanode(), await coordinator.datanode("dn-2")
        stranger = await coordinator.datanode("dn-3")
        await first.register("f")
        await second.register("s")
        new = Trust(is_required=True, revoked=["stolen"])
        coordinator.port.trust(new)
        for each in (first, second):
            told = (await each.receive()).message
            assert isinstance(told, HeartbeatAck) and told.trust == new
        first.say(Heartbeat(USAGE))
        told = (await first.receive()).message
        assert isinstance(told, HeartbeatAck) and told.trust is None, "it has been told already"
        assert isinstance(await stranger.register("t"), Registered)

    tell(story)
