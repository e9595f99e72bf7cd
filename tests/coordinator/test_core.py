"""The composite core: events that concern several parts, and the driver that performs commands."""

from __future__ import annotations

from typing import get_args

import pytest
from support.files_in_memory import context_in_memory
from support.new_core import new_core
from support.no_links import NoLinks
from support.play import Play, record, registration

from peacefs.coordinator.cluster.repair import ReplicaCopy
from peacefs.coordinator.core import BecameReady, Command, CoordinatorCore
from peacefs.coordinator.scheduling.write_sets import Push, WriteSetRequest
from peacefs.protocol.errors import NoDatanodes
from peacefs.protocol.limits import MIB, dead_after_s
from peacefs.protocol.messages import Replica, ReportChunks, StreamEnded


def core_with(*nodes: str, streams_per_node: int = 1) -> CoordinatorCore:
    """Return a core whose datanodes hold nothing. The first tick makes it ready."""
    core = new_core(streams_per_node=streams_per_node)
    core.loaded()
    for node in nodes:
        core.register(0.0, registration(node, rack=f"/{node}"))
        core.report(0.0, node, ReportChunks([], last=True))
    assert BecameReady(len(nodes)) in core.tick(0.0)
    return core


def request(name: str, **changes: object) -> WriteSetRequest:
    fields = {"name": f"dn-1 {name}", "link": "dn-1", "writer": "dn-1", "replication": 1, "chunks": {0: MIB}}
    return WriteSetRequest(**{**fields, **changes})  # type: ignore[arg-type]


def grants(commands: list[Command]) -> list[Push]:
    return [command for command in commands if isinstance(command, Push)]


def test_driver_performs_every_command_of_the_core() -> None:
    driver = context_in_memory(new_core(), NoLinks(), lambda: 0.0).driver
    assert driver.kinds == set(get_args(Command))


def test_grant_is_the_reply_to_its_writer_and_pushed_to_all_others() -> None:
    core = core_with("dn-1")
    (given,) = grants(core.state_writes(1.0, request("first")))
    assert given.is_reply and core.cluster.pipelines() == [["dn-1"]]
    assert not grants(core.state_writes(1.0, request("second"))), "it waits: there is one slot"
    (pushed,) = grants(core.stream_ended(2.0, "dn-1", StreamEnded(given.grant.chunk, True, MIB)))
    assert not pushed.is_reply and (pushed.link, pushed.grant.write_set) == ("dn-1", "dn-1 second")


def test_event_that_raises_has_changed_nothing() -> None:
    core = core_with("dn-1")
    with pytest.raises(NoDatanodes):
        core.state_writes(1.0, request("nowhere", exclude=frozenset({"dn-1"})))
    assert not core.scheduling.queue and not core.scheduling.grants and not core.cluster.pipelines()


def test_death_of_a_datanode_frees_what_was_granted_through_it() -> None:
    """Both the cluster and the schedule are informed."""
    core = core_with("dn-1")
    (given,) = grants(core.state_writes(1.0, request("first")))
    now_s = 1.0
    while core.scheduling.grants and now_s < 1000.0:
        now_s += 1.0
        core.tick(now_s)
    assert not core.scheduling.grants, f"{given} is held for ever by a datanode that is dead"
    assert now_s > dead_after_s


def test_copy_takes_a_slot_until_it_is_answered() -> None:
    play = Play(streams_per_node=1)
    core = play.core
    core.load([record(7, replication=2, hint=("dn-1",))])
    held = Replica(7, 1, 1000)
    play.join("dn-1", rack="/1", holding=(held,))
    play.join("dn-2", rack="/2")
    core.loaded()
    copies: list[ReplicaCopy] = []
    while not copies and play.now_s < 200.0:
        play.now_s += 1.0
        play.beat()
        copies = [command for command in core.tick(play.now_s) if isinstance(command, ReplicaCopy)]
    (copy,) = copies
    assert copy.target == "dn-2" and not core.scheduling.has_room("dn-2")
    core.copy_answered(play.now_s, copy, copied=False)
    assert core.scheduling.has_room("dn-2")
