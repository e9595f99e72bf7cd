"""Long work is done in turns, with other requests in between; whatever still blocks the loop is reported."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time

import pytest
from support.immediate_commit import CommitsAtOnce, durable_at_once
from support.new_core import new_core
from support.no_links import NoLinks
from support.node_port import NodePort
from support.play import registration
from support.spoken_link import SIGNER as _SIGNER
from support.spoken_link import Datanode

from peacefs.coordinator.metadata.model import ChunkRecord
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.rpc.datanode_session import link_turn_s
from peacefs.datanode.control.coordinator_session import report_chunks_per_frame
from peacefs.protocol.errors import SafeMode
from peacefs.protocol.messages import Done, Replica, ReportChunks
from peacefs.service.loop_watchdog import LoopWatchdog

_FRAMES = 30


@pytest.mark.evidence("loop-is-free")
def test_a_long_report_is_taken_in_whole_and_in_order_while_others_get_their_turn() -> None:
    ticks = itertools.count()
    core = new_core()
    cluster = core.cluster
    cluster.loaded()
    chunks = [ChunkRecord(number, 1, 10, 1, ("dn-1",)) for number in range(_FRAMES * report_chunks_per_frame)]
    cluster.load(chunks)

    async def story() -> int:
        # Each reading of this clock takes two thirds of a turn.
        async with NodePort(core, lambda: next(ticks) * link_turn_s * 2 / 3) as port:
            return await report(await port.datanode())

    async def report(datanode: Datanode) -> int:
        await datanode.register()
        turns_of_others = 0
        finished = asyncio.Event()

        async def others() -> None:
            nonlocal turns_of_others
            while not finished.is_set():
                turns_of_others += 1
                await asyncio.sleep(0)

        busy = asyncio.create_task(others())
        for at in range(0, len(chunks), report_chunks_per_frame):
            part = [Replica(chunk.chunk, 1, 10) for chunk in chunks[at : at + report_chunks_per_frame]]
            last = at + report_chunks_per_frame >= len(chunks)
            datanode.say(ReportChunks(part, last=last), tag=at + 1)
        answered = [await datanode.receive() for _ in range(_FRAMES)]
        finished.set()
        await busy
        assert [frame.tag for frame in answered] == [at * report_chunks_per_frame + 1 for at in range(_FRAMES)]
        assert all(isinstance(frame.message, Done) for frame in answered)
        return turns_of_others

    assert asyncio.run(story()) >= _FRAMES // 2
    assert cluster.chunks.held_by("dn-1") == len(chunks)
    node = cluster.members.get("dn-1")
    assert node is not None and node.reported


def test_reports_of_several_datanodes_take_turns_and_none_is_forgotten() -> None:
    names = [f"dn-{number}" for number in range(5)]
    core = new_core()
    cluster = core.cluster
    cluster.loaded()
    chunks = [ChunkRecord(number, 1, 10, 5, ()) for number in range(10 * report_chunks_per_frame)]
    cluster.load(chunks)
    ticks = itertools.count()

    async def one(datanode: Datanode) -> None:
        await datanode.register()
        for at in range(0, len(chunks), report_chunks_per_frame):
            part = [Replica(chunk.chunk, 1, 10) for chunk in chunks[at : at + report_chunks_per_frame]]
            datanode.say(ReportChunks(part, last=part[-1].chunk == chunks[-1].chunk), tag=1)
        for _ in range(10):
            await datanode.receive()

    async def story() -> None:
        async with NodePort(core, lambda: next(ticks) * link_turn_s) as port:
            await asyncio.gather(*[one(await port.datanode(name)) for name in names])

    asyncio.run(story())
    assert [cluster.chunks.held_by(name) for name in names] == [len(chunks)] * 5


def test_more_than_may_wait_for_readiness_are_told_to_come_again_at_once() -> None:
    async def story() -> None:
        metadata = store_in_memory()
        core = new_core()
        cluster = core.cluster

        now_s = 0.0
        at = OperationContext(
            metadata.reader(),
            CommitsAtOnce(metadata),
            core,
            _SIGNER,
            NoLinks(),
            durable_at_once(metadata),
            monotonic=lambda: now_s,
            waiting_max=2,
        )
        waiting = [asyncio.create_task(at.until_ready()) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(SafeMode):
            await at.until_ready()
        cluster.register(0.0, registration("dn-1"))
        cluster.loaded()
        now_s = 46.0
        cluster.tick(now_s, 0)
        await asyncio.gather(*waiting, return_exceptions=True)
        metadata.close()

    asyncio.run(story())


@pytest.mark.evidence("loop-is-free")
def test_loop_watchdog_measures_a_hold_and_names_its_place(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> float:
        watchdog = LoopWatchdog(interval_s=0.005, logged_s=0.05, log_pause_s=0.0)
        watching = asyncio.create_task(watchdog.watch())
        await asyncio.sleep(0.02)
        _hold_the_loop()
        await asyncio.sleep(0.02)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        return watchdog.longest_s

    with caplog.at_level(logging.WARNING, logger="peacefs.loop"):
        longest_s = asyncio.run(story())
    assert longest_s >= 0.2
    said = [
        record.getMessage() for record in caplog.records if "the event loop was held for" in record.getMessage()
    ]
    assert any("_hold_the_loop" in message for message in said), said


def _hold_the_loop() -> None:
    time.sleep(1.0)
