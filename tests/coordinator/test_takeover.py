"""A coordinator that has just taken over: what it drops and orders, and what it answers meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.files_in_memory import context_in_memory
from support.new_core import new_core
from support.no_links import NoLinks
from support.play import Play, record

from peacefs.coordinator.failover.door import Door
from peacefs.coordinator.failover.leadership import Leadership, leader_silence_max_s
from peacefs.coordinator.journal.port import Member
from peacefs.coordinator.limits import leader_lease_s
from peacefs.coordinator.metadata.model import AdminDecision, Mode
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.datanode_admin import DatanodeAdmin
from peacefs.coordinator.rpc.datanode_links import DatanodeLinks
from peacefs.protocol.errors import ServiceUnready, Standby
from peacefs.protocol.messages import DeleteChunks, Failure, Heartbeat, Message, Replica, ReportAgain

A, B = Member("a:9870"), Member("b:9870")
NODES = ("dn-1", "dn-2", "dn-3", "dn-4")


def beat(play: Play, node: str, epoch: int, **said: Any) -> None:
    found = play.cluster.members.get(node)
    assert found is not None
    play.cluster.heartbeat(play.now_s, node, Heartbeat(found.usage, epoch=epoch, **said))


def dropped(play: Play, seconds: float) -> list[str]:
    orders = [order for ticked in play.ticks(seconds) for order in ticked.orders]
    return [order.node for order in orders if isinstance(order.message, DeleteChunks)]


def test_surplus_replica_stays_until_every_datanode_has_heard_the_epoch(play: Play) -> None:
    play.join(*NODES)
    play.open_for_business()
    play.publish([record(1, hint=NODES[:3])])
    beat(play, "dn-4", 0, added=[Replica(1, 1, 1000)])
    play.cluster.await_epoch(7)
    assert dropped(play, 60.0) == []
    for node in NODES[:3]:
        beat(play, node, 7)
    assert dropped(play, 60.0) == []
    # The last one may still obey the earlier leader, until it says otherwise.
    beat(play, "dn-4", 7)
    assert len(dropped(play, 60.0)) == 1


def test_datanodes_are_asked_to_show_what_they_hold_when_all_have_heard_the_epoch(play: Play) -> None:
    """Before, a datanode might prove a replica that the earlier leader has told it to drop."""
    play.join(*NODES)
    play.open_for_business()
    play.publish([record(1, hint=NODES[:3])])
    beat(play, "dn-4", 0, added=[Replica(1, 1, 1000)])
    play.cluster.await_epoch(7)
    for node in NODES[:3]:
        beat(play, node, 7)
    assert [each for ticked in play.ticks(10.0) for each in ticked.questions] == []
    beat(play, "dn-4", 7)
    assert [each for ticked in play.ticks(10.0) for each in ticked.questions] != []
    # A datanode that counted as dead may have been led by another coordinator.
    play.cluster.await_epoch(8)
    for node in NODES[:3]:
        beat(play, node, 8)
    assert play.cluster.awaits_epoch


def test_freed_chunk_of_a_standby_is_not_ordered_to_go(play: Play) -> None:
    play.join(*NODES)
    play.open_for_business()
    play.publish([record(1, hint=NODES[:3])])
    play.cluster.freed(play.now_s, [record(1, hint=NODES[:3])])
    for _ in range(100):
        play.now_s += 0.25
        for node in NODES:
            beat(play, node, 0)
        assert play.cluster.stand_by(play.now_s) == []
    # It leads now and orders the drop, which the earlier leader may not have done.
    assert sorted(dropped(play, 1.0)) == ["dn-1", "dn-2", "dn-3"]


class _Link:
    """Records the messages to a datanode."""

    name = "dn-1"

    def __init__(self) -> None:
        self.written: list[Message] = []

    def write(self, message: Message, tag: int = 0) -> None:
        self.written.append(message)


def test_orders_bear_the_epoch_of_the_leader_and_a_standby_gives_none() -> None:
    links, link = DatanodeLinks(), _Link()
    links.registered(link)  # type: ignore[arg-type]
    links.stand_by()
    links.send("dn-1", DeleteChunks([Replica(1, 1, 1)]))
    answers: list[Message] = []
    links.ask("dn-1", DeleteChunks([Replica(1, 1, 1)]), answers.append)
    assert link.written == []
    assert isinstance(answers[0], Failure)
    links.lead(lambda: 7)
    links.send("dn-1", DeleteChunks([Replica(1, 1, 1)]))
    links.send("dn-1", ReportAgain())
    assert link.written == [DeleteChunks([Replica(1, 1, 1)], epoch=7), ReportAgain()]


class Clock:
    """A leader's clock, and sleeping by that clock."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        await asyncio.sleep(0)


async def _lives() -> bool:
    return True


async def _is_dead() -> bool:
    return False


def test_leader_answers_only_for_a_while_after_it_was_confirmed() -> None:
    clock = Clock()
    leadership = Leadership(clock, A)
    assert not leadership.may_answer
    leadership.begin(5)
    leadership.confirmed(clock.now_s)
    clock.now_s += leader_silence_max_s - 0.01
    assert leadership.may_answer
    # It was stopped meanwhile, or its journal is unavailable.
    clock.now_s += 0.02
    assert not leadership.may_answer
    with pytest.raises(ServiceUnready):
        leadership.refuse_standby()
    assert leader_silence_max_s < leader_lease_s


def test_standby_sends_clients_to_a_leader_that_lives_at_once() -> None:
    clock = Clock()
    leadership = Leadership(clock, B)
    leadership.seen(A)
    door = Door(leadership, clock, clock.sleep, leader_lives=_lives)
    with pytest.raises(Standby, match="a:9870 leads"):
        asyncio.run(door.pass_through())
    assert clock.now_s == 100.0


def test_standby_holds_clients_of_a_leader_that_is_dead_until_it_leads() -> None:
    """A stock Hadoop client that gets only standby answers gives up within a second."""
    clock = Clock()
    leadership = Leadership(clock, B)
    leadership.seen(A)
    door = Door(leadership, clock, clock.sleep, leader_lives=_is_dead)

    async def held() -> None:
        passing = asyncio.ensure_future(door.pass_through())
        for _ in range(20):
            await asyncio.sleep(0)
        assert clock.now_s > 100.0
        assert not passing.done()
        leadership.begin(6)
        leadership.confirmed(clock.now_s)
        await passing

    asyncio.run(held())


def test_standby_has_clients_come_again_when_nobody_leads_for_long() -> None:
    clock = Clock()
    door = Door(Leadership(clock, B), clock, clock.sleep, leader_lives=_is_dead, hold_s=20.0)
    with pytest.raises(ServiceUnready) as refusal:
        asyncio.run(door.pass_through())
    assert not isinstance(refusal.value, Standby)
    assert refusal.value.hadoop_class == "org.apache.hadoop.ipc.RetriableException"
    assert 120.0 <= clock.now_s < 121.0


def test_decisions_that_another_leader_took_back_are_taken_back_here() -> None:
    """A datanode was draining when this coordinator became a standby, and is in service when it leads."""
    context = context_in_memory(new_core(), NoLinks(), lambda: 0.0)
    administration = DatanodeAdmin(context)

    def decide(mode: Mode) -> None:
        asyncio.run(_commit(context, mode))
        administration.recall()

    decide(Mode.DECOMMISSION)
    assert context.cluster.members.out_of_service() == ["dn-1"]
    decide(Mode.IN_SERVICE)
    assert context.cluster.members.out_of_service() == []


async def _commit(context: OperationContext, mode: Mode) -> None:
    await context.commit(lambda tx: tx.decide("dn-1", AdminDecision(mode, None)))


def test_answer_read_before_a_coordinator_was_stopped_for_long_is_not_given() -> None:
    """Others have led meanwhile, and changed the answer."""
    clock = Clock()
    leadership = Leadership(clock, A)
    leadership.begin(5)
    leadership.confirmed(clock.now_s)
    door = Door(leadership, clock, clock.sleep, leader_lives=_lives)

    assert door.may_answer
    clock.now_s += leader_lease_s
    assert isinstance(door.refusal(is_read=True), ServiceUnready)
    assert door.refusal(is_read=False) is None, "what was changed here the journal has fenced"
    assert not door.may_answer
    leadership.confirmed(clock.now_s)
    assert door.may_answer
    assert door.refusal(is_read=True) is None
