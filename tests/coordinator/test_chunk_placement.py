"""Placement of new chunks depends only on the known state of datanodes, not on earlier placements."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from support.play import USAGE, Play, registration

from peacefs.coordinator.cluster.pending_load import PendingLoad
from peacefs.coordinator.cluster.placement import ChunkPlacement
from peacefs.coordinator.metadata.model import Mode
from peacefs.protocol.errors import NoDatanodes
from peacefs.protocol.limits import chunk_bytes_max
from peacefs.protocol.messages import Heartbeat, Usage
from peacefs.topology.loader import parse_toml

_FULL = Usage(USAGE.capacity_bytes, USAGE.capacity_bytes - 1, chunk_bytes_max - 1)
_ELSEWHERE = """
root = "core"

[[switch]]
name = "core"
[[switch]]
name = "/rack-2"
uplink = "core"

[[servers]]
rack = "/rack-2"
names = ["dn-3"]
"""
_chunks = iter(range(1, 1_000_000))


@pytest.fixture
def busy(play: Play) -> Play:
    """Return three datanodes of one rack, through which chunks have just been written."""
    play.join("dn-1", "dn-2", "dn-3")
    play.open_for_business()
    assert chosen(play) == {"dn-1", "dn-2", "dn-3"}
    return play


def chosen(play: Play, replication: int = 3) -> set[str]:
    """Place a chunk, and complete its write at once."""
    chunk = next(_chunks)
    nodes = play.cluster.place(play.now_s, chunk, None, replication, frozenset(), 60.0)
    play.cluster.write_ended(chunk)
    return {node.id for node in nodes}


def keep_silent(play: Play, seconds: float) -> None:
    play.beating.discard("dn-3")
    play.let_pass(seconds)


@pytest.mark.parametrize(
    ("happens", "undone"),
    [
        (
            lambda play: play.cluster.heartbeat(play.now_s, "dn-3", Heartbeat(_FULL)),
            lambda play: play.cluster.heartbeat(play.now_s, "dn-3", Heartbeat(USAGE)),
        ),
        (
            lambda play: play.cluster.set_mode("dn-3", Mode.DECOMMISSION),
            lambda play: play.cluster.set_mode("dn-3", Mode.IN_SERVICE),
        ),
        (
            lambda play: play.cluster.set_mode("dn-3", Mode.MAINTENANCE, play.now_s + 5),
            lambda play: play.let_pass(6),
        ),
        (
            lambda play: keep_silent(play, 4),
            lambda play: play.cluster.heartbeat(play.now_s, "dn-3", Heartbeat(USAGE)),
        ),
        (lambda play: keep_silent(play, 11), lambda play: play.join("dn-3")),
    ],
    ids=["full", "to leave", "in maintenance for a while", "suspect", "dead"],
)
def test_one_that_may_get_nothing_gets_nothing_from_then_on_until_that_is_over(
    busy: Play, happens: Callable[[Play], object], undone: Callable[[Play], object]
) -> None:
    happens(busy)
    assert chosen(busy) == {"dn-1", "dn-2"}
    undone(busy)
    assert chosen(busy) == {"dn-1", "dn-2", "dn-3"}


def test_one_that_has_just_come_gets_its_share(busy: Play) -> None:
    busy.join("dn-4")
    assert "dn-4" in set().union(*(chosen(busy) for _ in range(50)))


def test_one_that_comes_back_elsewhere_is_written_to_where_it_is(busy: Play) -> None:
    busy.cluster.register(busy.now_s, registration("dn-3", host="moved.example"))
    nodes = busy.cluster.place(busy.now_s, next(_chunks), "moved.example", 3, frozenset(), 60.0)
    assert nodes[0].hop.host == "moved.example", "the writer is on the same host"


def test_one_that_is_found_to_stand_in_another_rack_counts_there(busy: Play) -> None:
    busy.cluster.describe_network(parse_toml(_ELSEWHERE))
    for _ in range(20):
        assert "dn-3" in chosen(busy, replication=2), "two replicas are in two racks"


def test_one_that_is_busy_is_passed_over_as_long_as_it_is(busy: Play) -> None:
    busy.join("dn-4")
    under_way = [next(_chunks) for _ in range(9)]
    for chunk in under_way:
        busy.cluster.granted(busy.now_s, chunk, ["dn-1"], 60.0)
    assert "dn-1" not in set().union(*(chosen(busy) for _ in range(50)))
    for chunk in under_way:
        busy.cluster.write_ended(chunk)
    assert "dn-1" in set().union(*(chosen(busy) for _ in range(50)))


def test_without_any_datanode_it_is_said_how_many_there_are(busy: Play) -> None:
    for node in ("dn-1", "dn-2", "dn-3"):
        busy.cluster.set_mode(node, Mode.DECOMMISSION)
    with pytest.raises(NoDatanodes, match="3 alive, 0 excluded, 3 to leave"):
        chosen(busy)


def test_copy_draws_no_target_where_no_datanode_is_left(busy: Play) -> None:
    """With one of three datanodes down, every chunk asks for a target in each round of planning."""
    rng = Random(1)
    choose = ChunkPlacement(busy.cluster.members, busy.cluster.slow_peers, PendingLoad(), rng).target_chooser()
    before = rng.getstate()
    assert choose(["dn-1", "dn-2"], frozenset({"dn-3"})) is None
    assert rng.getstate() == before
    assert choose(["dn-1"], frozenset({"dn-3"})) == "dn-2"
