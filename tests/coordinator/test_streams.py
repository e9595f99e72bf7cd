"""Permitted chunk writes are tracked until they end. Datanodes report which streams load them."""

from __future__ import annotations

from random import Random

import pytest
from support.play import USAGE, Play, record

from peacefs.coordinator.cluster.chunk_writes import WriteStreams
from peacefs.coordinator.cluster.core import Cluster
from peacefs.coordinator.cluster.pending_load import PendingLoad, pending_load_s
from peacefs.coordinator.metadata.garbage import Garbage
from peacefs.peace.policies.hdfs_placement import LOAD_FACTOR
from peacefs.protocol.limits import heartbeat_interval_s
from peacefs.protocol.messages import Heartbeat

NODES = ("dn-1", "dn-2", "dn-3", "dn-4", "dn-5", "dn-6")


@pytest.fixture
def play() -> Play:
    play = Play()
    play.join(*NODES[:3])
    play.join(*NODES[3:], rack="/rack-2")
    play.open_for_business()
    return play


def place(play: Play, chunk: int, replication: int = 1) -> list[str]:
    return [node.id for node in play.cluster.place(play.now_s, chunk, None, replication, frozenset(), 21_600.0)]


def test_creates_that_nobody_carries_out_are_load_for_a_moment_only(play: Play) -> None:
    pipelines = [place(play, chunk, replication=3) for chunk in range(20)]
    assert play.cluster.pipelines() == pipelines
    play.let_pass(pending_load_s)
    assert play.cluster.pipelines() == []
    assert len(play.cluster.chunks_being_written) == 20, "they may still be written"
    play.let_pass(21_600.0 - pending_load_s)
    assert not play.cluster.chunks_being_written


def test_a_burst_spreads_before_any_datanode_can_have_told_of_it(play: Play) -> None:
    for burst in range(10):
        heads: list[str] = []
        for number in range(60):
            (head,) = place(play, 100 * burst + number)
            assert heads.count(head) <= LOAD_FACTOR * len(heads) / len(NODES)
            heads.append(head)
        play.let_pass(pending_load_s)


@pytest.mark.parametrize("ends", ["written", "abandoned", "given_up", "published"])
def test_stream_that_has_ended_is_no_load(play: Play, ends: str) -> None:
    place(play, 7, replication=3)
    match ends:
        case "written":
            play.cluster.written(7)
        case "abandoned":
            play.cluster.write_ended(7)
        case "given_up":
            play.cluster.abandon([7], "writer")
        case "published":
            play.publish([record(7, hint=("dn-1",))])
    assert play.cluster.pipelines() == []
    assert (7 in play.cluster.chunks_being_written) == (ends == "written")


def test_busy_datanode_gets_no_chunks_while_others_are_not(play: Play) -> None:
    busy = USAGE.__class__(USAGE.capacity_bytes, USAGE.used_bytes, USAGE.available_bytes, streams=30)
    play.cluster.heartbeat(play.now_s, "dn-2", Heartbeat(busy))
    chosen = {node for chunk in range(10) for node in place(play, chunk, replication=3)}
    assert chosen == set(NODES) - {"dn-2"}
    play.let_pass(pending_load_s)
    chosen = {node for chunk in range(100, 130) for node in place(play, chunk, replication=3)}
    assert chosen == set(NODES), "its heartbeats say that it is no more"


def test_a_grant_is_load_until_its_end_and_not_counted_twice() -> None:
    granted = {7: ("dn-1", "dn-4")}
    cluster = Cluster(100.0, Random(1), granted_pipelines=lambda: granted)
    cluster.granted(100.0, 7, granted[7], 21_600.0)
    assert cluster.pipelines() == [["dn-1", "dn-4"]]
    cluster.tick(160.0, Garbage(0))
    assert cluster.pipelines() == [["dn-1", "dn-4"]]
    granted.clear()
    assert cluster.pipelines() == []


def test_placed_chunk_counts_for_each_of_its_nodes_until_they_report() -> None:
    assert pending_load_s > heartbeat_interval_s
    placed = PendingLoad()
    placed.add(100.0, 1, ["a", "b"])
    placed.add(101.0, 2, ["b"])
    assert (placed.through("a"), placed.through("b"), placed.through("c")) == (1, 2, 0)
    placed.forget_old(100.0 + pending_load_s)
    assert (placed.through("a"), placed.through("b")) == (0, 1)
    placed.end(1)
    placed.end(2)
    placed.end(2)
    assert (placed.through("a"), placed.through("b")) == (0, 0)


def test_one_whose_token_has_expired_is_over() -> None:
    streams = WriteStreams()
    streams.open(1, 100.0)
    streams.open(2, 110.0)
    streams.close_overdue(99.9)
    assert streams.chunks == {1, 2}
    streams.close_overdue(105.0)
    assert streams.chunks == {2}
    streams.close_overdue(110.0)
    assert not streams.chunks


def test_stream_that_has_ended_takes_no_room() -> None:
    streams = WriteStreams()
    for chunk in range(10_000):
        streams.open(chunk, 100.0)
        streams.close(chunk)
    assert len(streams._deadlines) <= 1001
