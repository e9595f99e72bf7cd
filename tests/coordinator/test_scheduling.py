"""Scheduling of writes: capacity is never granted twice, always returned, and never by a timeout alone."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_runs import often
from support.scheduled import Scheduled

from peacefs.coordinator.limits import grant_open_s, write_set_chunks_max
from peacefs.coordinator.scheduling.grant_monitor import grant_ask_interval_s
from peacefs.coordinator.scheduling.scheduler import Scheduling, write_sets_waiting_max
from peacefs.coordinator.scheduling.write_sets import Push, Refuse, WriteSetRequest, write_set_silence_s
from peacefs.peace.policies.ledger import Grant
from peacefs.peace.policies.random import RandomPolicy
from peacefs.protocol.errors import BadRequest, NoDatanodes, Overloaded
from peacefs.protocol.ids import Numbering
from peacefs.protocol.limits import MIB, grant_clock_slack_s
from peacefs.protocol.messages import StreamUnderWay

LAPSED_S = grant_open_s + 2 * grant_clock_slack_s + 1.0
POLICIES = ("express", "timely", "paper", "random", "flow")


def test_a_request_is_answered_at_once_granted_or_queued_with_an_expected_start() -> None:
    play = Scheduled(streams_per_node=1)
    assert [grant.index for grant in play.state("a", 1)] == [0]
    assert play.state("b", 1) == []
    assert play.scheduling.expected_start_s("http b") > 0
    assert play.scheduling.expected_start_s("http a") == 0
    play.ends(play.granted("a")[0])
    assert [grant.index for grant in play.granted("b")] == [0]


def test_stated_again_nothing_is_granted_twice_and_what_was_not_received_comes_again() -> None:
    play = Scheduled(streams_per_node=1)
    (first,) = play.state("a", 1)
    assert play.state("a", 1) == [first]
    assert len(play.scheduling.grants) == 1


def test_writer_with_less_in_all_goes_first_whatever_it_asks_for_now() -> None:
    play = Scheduled(streams_per_node=1)
    (first,) = play.state("a", 1)
    play.state("long", 1, to_come_bytes=100 * 4 * MIB)
    play.state("short", 2)
    play.ends(first)
    assert play.granted("short") and not play.granted("long")


def test_a_completion_counts_once_and_only_from_the_head_of_the_pipeline() -> None:
    play = Scheduled(streams_per_node=1)
    (grant,) = play.state("a", 1)
    play.ends(grant, node=grant.nodes[1])
    assert play.scheduling.grants
    play.ends(grant)
    play.ends(grant)
    assert not play.scheduling.grants
    play.state("b", 1)
    assert play.state("c", 1) == [], "given back once, it is free once"


def test_capacity_never_comes_back_by_time_alone_but_when_every_node_denies_the_stream() -> None:
    play = Scheduled(streams_per_node=1)
    (grant,) = play.state("a", 1)
    play.now_s += 10 * LAPSED_S
    asked = play.tick()
    assert sorted(asked) == sorted(grant.nodes), "all nodes of the pipeline are asked"
    assert play.scheduling.grants
    for node in grant.nodes[:-1]:
        play.denies(node, grant)
    assert play.scheduling.grants, "one of them has not answered"
    play.denies(grant.nodes[-1], grant)
    assert not play.scheduling.grants
    assert play.scheduling.times.lapsed_total == 1


def test_a_node_that_has_the_stream_keeps_the_grant_however_long_it_takes() -> None:
    play = Scheduled()
    (grant,) = play.state("a", 1)
    for _ in range(5):
        play.now_s += LAPSED_S
        play.tick()
        for node in grant.nodes[1:]:
            play.denies(node, grant)
        play.has(grant.nodes[0], grant)
    assert play.scheduling.grants


def test_a_dead_datanode_denies_without_being_asked() -> None:
    play = Scheduled()
    (grant,) = play.state("a", 1)
    for node in grant.nodes[1:]:
        play.scheduling.died(node)
    play.now_s += LAPSED_S
    assert play.tick() == [grant.nodes[0]]
    play.denies(grant.nodes[0], grant)
    assert not play.scheduling.grants


def test_a_writer_that_is_not_heard_of_loses_its_place_and_nobody_waits_for_it() -> None:
    play = Scheduled(streams_per_node=1)
    (grant,) = play.state("a", 1)
    play.state("silent", 1)
    play.now_s += write_set_silence_s + 1
    play.state("heard", 1)
    play.tick()
    assert [queued.request.name for queued in play.scheduling.queue] == ["http heard"]
    play.ends(grant)
    assert play.granted("heard")


def test_a_chunk_whose_pipeline_broke_is_granted_elsewhere() -> None:
    play = Scheduled(nodes=6)
    (first,) = play.state("a", 1)
    (second,) = play.state("a", 1, exclude=[first.nodes[0]], abandoned=[first.chunk])
    assert second.chunk != first.chunk
    assert first.nodes[0] not in second.nodes
    assert len(play.scheduling.grants) == 1


def test_a_checkpoint_that_is_cancelled_and_comes_back_with_another_k_keeps_its_age() -> None:
    play = Scheduled(streams_per_node=1)
    play.state("a", 1)
    play.state("old", 3)
    play.now_s += 7.0
    play.state("old", 0)
    assert play.scheduling.queue == []
    play.now_s += 7.0
    play.state("old", 5)
    (queued,) = play.scheduling.queue
    assert (play.now_s - queued.asked_s, len(queued.waiting)) == (14.0, 5)


def test_grant_of_an_earlier_coordinator_holds_its_capacity_in_this_one() -> None:
    play = Scheduled(streams_per_node=1, nodes=3)
    stream = StreamUnderWay(5, 6, ["n0", "n1", "n2"])
    play.scheduling.registered(play.now_s, "n0", [stream])
    play.scheduling.registered(play.now_s, "n0", [stream])
    assert play.state("a", 1) == []
    play.scheduling.ended(play.now_s, "n0", 5, completed=True, length=1)
    assert play.state("a", 1)


def test_grant_taken_over_ends_by_its_writers_word_or_when_its_nodes_deny_it() -> None:
    play = Scheduled(streams_per_node=1, nodes=3)
    play.scheduling.registered(play.now_s, "n0", [StreamUnderWay(5, 6, ["n0", "n1", "n2"])])
    assert play.state("a", 1, abandoned=[5]), "its writer gives it up and gets another"
    play.finish_all()
    play.scheduling.registered(play.now_s, "n0", [StreamUnderWay(7, 8, ["n0", "n1", "n2"])])
    play.scheduling.died("n0")
    play.now_s += LAPSED_S
    (grant,) = play.scheduling.grants
    assert sorted(play.tick()) == ["n1", "n2"]
    play.denies("n1", grant)
    play.denies("n2", grant)
    assert not play.scheduling.grants


@pytest.mark.parametrize("comes_back", [False, True])
def test_grant_that_had_begun_is_asked_about_as_soon_as_its_head_is_gone(comes_back: bool) -> None:
    play = Scheduled(streams_per_node=1, nodes=3)
    play.scheduling.registered(play.now_s, "n0", [StreamUnderWay(5, 6, ["n0", "n1", "n2"])])
    (grant,) = play.scheduling.grants
    play.scheduling.died("n0")
    if comes_back:
        play.scheduling.registered(play.now_s, "n0", [])
    play.now_s += grant_ask_interval_s
    assert {"n1", "n2"} <= set(play.tick())
    play.has("n1", grant)
    play.denies("n2", grant)
    assert play.scheduling.grants, "the second hop has not noticed yet"
    play.now_s += grant_ask_interval_s
    assert {"n1", "n2"} <= set(play.tick())
    play.denies("n1", grant)
    play.denies("n2", grant)
    assert not play.scheduling.grants


def test_requests_that_are_impossible_or_out_of_bounds_are_refused_and_not_queued() -> None:
    play = Scheduled()
    with pytest.raises(BadRequest, match=f"1000000 chunks are over the limit of {write_set_chunks_max}"):
        play.state("a", 1_000_000)
    with pytest.raises(BadRequest, match="replication 0"):
        play.state("a", 1, replication=0)
    with pytest.raises(NoDatanodes, match="5 in service have room for one, 5 excluded"):
        play.state("a", 1, exclude=[f"n{n}" for n in range(5)])
    with pytest.raises(NoDatanodes):
        Scheduled(nodes=0).state("a", 1)
    assert play.scheduling.queue == []


def test_writer_beside_a_datanode_waits_for_nothing_where_capacities_are_ample() -> None:
    play = Scheduled(nodes=4, streams_per_node=64)
    for number in range(20):
        play.scheduling.state(
            play.now_s, WriteSetRequest(f"link {number}", "n1", "n1", 3, dict.fromkeys(range(3), MIB))
        )
    assert (len(play.scheduling.grants), play.scheduling.chunks_waiting) == (60, 0)


@pytest.mark.parametrize(("nodes", "turns"), [(16, 1), (800, 3)])
def test_a_policy_in_steps_looks_at_fewer_requests_a_turn_in_a_larger_network(nodes: int, turns: int) -> None:
    play = Scheduled(nodes=nodes, policy="paper")
    play.state("first", 1)
    for number in range(6):
        play.scheduling.state(
            play.now_s, WriteSetRequest(f"link {number}", "n0", "n0", 3, dict.fromkeys(range(9), MIB))
        )
    for grant in list(play.scheduling.grants):
        play.scheduling.ended(play.now_s, grant.nodes[0], grant.chunk, completed=True, length=MIB)
    seen = 1
    while play.scheduling.has_more:
        play.tick()
        seen += 1
    assert seen == turns


class NoRoom(RandomPolicy):
    """Behaves like any policy on a network without capacity."""

    def _admit(self, now_s: float) -> list[Grant]:
        return []


def test_set_without_a_place_even_in_an_idle_cluster_is_refused_and_forgotten() -> None:
    scheduling = Scheduling(
        Numbering(1), Random(1), policy_maker=lambda _name, topology, rng: NoRoom(topology, rng)
    )
    scheduling.use(0.0, scheduling.undescribed.of({"n0": "/rack"}))
    (refusal,) = scheduling.state(1.0, WriteSetRequest("http a", None, None, 1, {0: MIB}))
    assert isinstance(refusal, Refuse)
    assert "the policy express finds no place for it even in an idle cluster of 1 datanodes" in refusal.reason
    assert (scheduling.queue, scheduling.chunks_waiting) == ([], 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_writers_that_nobody_knows_and_more_replicas_than_nodes_are_served_as_well_as_it_goes(policy: str) -> None:
    play = Scheduled(nodes=2, policy=policy)
    request = WriteSetRequest("link n9", "n9", "n9", 3, {0: MIB})
    (push,) = play.scheduling.state(play.now_s, request)
    assert isinstance(push, Push)
    assert sorted(push.grant.nodes) == ["n0", "n1"]
    assert play.state("nothing", 0) == []
    assert play.scheduling.queue == []


@pytest.mark.parametrize("policy", POLICIES)
def test_a_node_that_dies_with_grants_on_it_gets_no_more_and_keeps_no_capacity(policy: str) -> None:
    play = Scheduled(nodes=4, streams_per_node=1, policy=policy)
    play.state("a", 1)
    (grant,) = play.granted("a")
    dead = grant.nodes[0]
    play.scheduling.died(dead)
    racks = {f"n{number}": f"/rack-{number % 2}" for number in range(4) if f"n{number}" != dead}
    play.carry_out(play.scheduling.use(play.now_s, play.scheduling.undescribed.of(racks)))
    (again,) = play.state("a", 1, exclude=[dead], abandoned=[grant.chunk])
    assert dead not in again.nodes
    play.finish_all()
    assert play.written == {("a", 0)}


def test_the_queue_is_bounded_and_says_so_in_words_that_ask_to_come_again() -> None:
    play = Scheduled(streams_per_node=1)
    for number in range(write_sets_waiting_max + 1):
        play.state(f"{number}", 1)
    with pytest.raises(Overloaded, match="try again"):
        play.state("one more", 1)


def test_the_policy_changes_while_chunks_are_written_and_nothing_is_lost() -> None:
    play = Scheduled(streams_per_node=2)
    for name in "abcdefgh":
        play.state(name, 2)
    before = list(play.scheduling.grants)
    for policy in (*POLICIES, "express"):
        play.change_policy(policy)
        assert list(play.scheduling.grants)[: len(before)] == before
    with pytest.raises(BadRequest, match="there is no policy 'fair'"):
        play.change_policy("fair")
    play.finish_all()
    assert play.written == {(name, index) for name in "abcdefgh" for index in range(2)}


def test_a_copy_takes_a_slot_and_gives_it_back_once() -> None:
    play = Scheduled(streams_per_node=1, nodes=1)
    play.scheduling.copy_begins(play.now_s, 77, "n0", "n0")
    assert not play.scheduling.has_room("n0")
    assert play.state("a", 1, replication=1) == []
    play.carry_out(play.scheduling.copy_ended(play.now_s, 77))
    play.scheduling.copy_ended(play.now_s, 77)
    assert play.granted("a")
    play.ends(play.granted("a")[0])
    assert play.scheduling.has_room("n0")


@settings(max_examples=often(24, 60), deadline=None)
@given(
    policy=st.sampled_from(POLICIES),
    nodes=st.integers(3, 7),
    seed=st.integers(0, 1000),
    events=st.lists(st.tuples(st.sampled_from("swxlcdt"), st.integers(0, 5), st.integers(1, 4)), max_size=60),
)
def test_whatever_happens_capacity_holds_and_everything_is_written_or_given_up(
    policy: str, nodes: int, seed: int, events: list[tuple[str, int, int]]
) -> None:
    """States, ends, aborts, lost grants, cancellations, dead nodes and time, in random order."""
    play = Scheduled(nodes=nodes, streams_per_node=2, policy=policy, seed=seed)
    for event, which, number in events:
        play.happens(event, which, number)
        if policy in ("express", "timely"):
            assert play.busiest() <= (2 if policy == "express" else 3)  # small sets pass
    play.finish_all()
    assert not play.scheduling.grants
    assert not play.scheduling.queue
    assert play.scheduling.chunks_waiting == 0
    if policy in ("express", "timely"):
        assert all(taken == 0 for taken, _ in play.loads())
