"""The default policy: what it admits, in which order, and the longest wait."""

from __future__ import annotations

from collections import Counter, deque
from random import Random

import pytest

from peacefs.peace.policies.express import AGE_BYTES_S, BEGUN_S, ExpressPolicy
from peacefs.peace.policies.interface import Aborted, Changed, Finished, Submitted, Withdrawn
from peacefs.peace.policies.ledger import Grant, WriteSet
from peacefs.peace.simulator.scenarios import FAST_DISK, one_slow_node, paper_cluster
from peacefs.protocol.limits import small_chunk_bytes_max
from peacefs.topology.model import Topology
from peacefs.topology.toml_file import parse_toml

MB = 1_000_000
CHUNK = 64 * MB


def grown(**racks: int) -> Topology:
    """Return racks /a, /b, ... with a number of nodes each: a0, a1, ..."""
    topology = Topology()
    for rack, size in racks.items():
        for number in range(size):
            topology = topology.with_server(f"{rack}{number}", f"/{rack}")
    return topology


def write_set(name: str, writer: str | None, chunks: int = 1, replication: int = 3) -> WriteSet:
    return WriteSet(name, writer, replication, (CHUNK,) * chunks)


def submit(policy: ExpressPolicy, *sets: WriteSet, now_s: float = 0.0) -> list[Grant]:
    return policy.handle([Submitted(each) for each in sets], now_s)


def finish(policy: ExpressPolicy, *grants: Grant, now_s: float = 1.0) -> list[Grant]:
    return policy.handle([Finished(grant.number) for grant in grants], now_s)


def racks_of(topology: Topology, grant: Grant) -> list[str]:
    return [topology.servers[node].rack for node in grant.chain]


# -- how much is admitted --------------------------------------------------------------------------


def test_a_writer_has_four_chunks_in_flight_and_gets_the_next_when_one_ends() -> None:
    policy = ExpressPolicy(paper_cluster(), Random(0))
    grants = submit(policy, write_set("s", "n00", chunks=9))
    assert len(grants) == 4
    assert len(finish(policy, grants[2])) == 1


def test_two_sets_of_one_writer_share_its_four() -> None:
    policy = ExpressPolicy(paper_cluster(), Random(0))
    assert len(submit(policy, write_set("s", "n00", chunks=3), write_set("t", "n00", chunks=3))) == 4


def test_six_chunks_cross_the_link_between_racks_and_a_seventh_waits() -> None:
    policy = ExpressPolicy(paper_cluster(), Random(0))
    grants = submit(policy, write_set("s", "n00", chunks=4), write_set("t", "n01", chunks=4))
    assert len(grants) == 6
    assert policy.loads().links["/rack-1", "/rack-2"] == (6, 6)
    assert len(submit(policy, write_set("u", "n09", chunks=4))) == 4, "the other direction is free"


def test_no_disk_gets_more_than_two_streams() -> None:
    policy = ExpressPolicy(paper_cluster(), Random(0))
    grants = submit(policy, *(write_set(f"s{n}", f"n{n:02}", chunks=4) for n in range(16)))
    receiving = Counter(node for grant in grants for node in grant.chain)
    assert len(grants) == 11 and max(receiving.values()) == 2, "11 chunks are 33 of 34 slots"


def test_network_cards_as_the_limit_give_a_writer_two_in_flight_and_nodes_three() -> None:
    policy = ExpressPolicy(paper_cluster(FAST_DISK), Random(0))
    grants = submit(policy, *(write_set(f"s{n}", f"n{n:02}", chunks=4) for n in range(2)))
    assert Counter(grant.write_set for grant in grants) == {"s0": 2, "s1": 1}, "the link carries three"
    assert {slots for _, slots in policy.loads().slots.values()} == {3}


def test_a_slow_node_gets_no_replica() -> None:
    topology = one_slow_node(Random(3))
    (slow,) = (server.name for server in topology.servers.values() if server.disk.best_rate < 20 * MB)
    policy = ExpressPolicy(topology, Random(0))
    writers = [name for name in sorted(topology.servers) if name != slow]
    grants = submit(policy, *(write_set(name, name, chunks=4) for name in writers))
    assert grants and slow not in {node for grant in grants for node in grant.chain}


def test_a_cluster_that_needs_its_slow_nodes_uses_them_for_one_stream_each() -> None:
    topology = grown(a=3)
    topology = topology.with_server("a2", "/a", disk=topology.defaults.disk.scaled(0.1))
    policy = ExpressPolicy(topology, Random(0))
    grants = submit(policy, write_set("s", None, chunks=4))
    assert [sorted(grant.chain) for grant in grants] == [["a0", "a1", "a2"]]
    assert policy.loads().slots["a2"] == (1, 1)


# -- where chunks go -------------------------------------------------------------------------------


@pytest.mark.parametrize("replication", [1, 2, 3, 4, 5, 6])
def test_replicas_are_split_evenly_over_two_racks_local_ones_first(replication: int) -> None:
    topology = grown(a=8, b=8, c=8)
    for seed in range(10):
        (grant,) = submit(ExpressPolicy(topology, Random(seed)), write_set("s", "a0", 1, replication))
        racks = racks_of(topology, grant)
        near = racks.count("/a")
        assert racks[:near] == ["/a"] * near and len(set(racks[near:])) <= 1
        assert near in ({1} if replication == 1 else {replication // 2, (replication + 1) // 2})
        assert "a0" not in grant.chain


def test_one_rack_holds_all_when_there_is_only_one() -> None:
    (grant,) = submit(ExpressPolicy(grown(a=5), Random(0)), write_set("s", "a0"))
    assert len(grant.chain) == 3 and "a0" not in grant.chain


def test_in_a_cluster_smaller_than_r_plus_one_the_writer_holds_the_first_replica() -> None:
    for topology in (grown(a=3), grown(a=2, b=1), grown(a=1, b=2), grown(a=1, b=1, c=1)):
        (grant,) = submit(ExpressPolicy(topology, Random(0)), write_set("s", "a0"))
        assert grant.chain[0] == "a0" and len(grant.chain) == 3


def test_fewer_nodes_than_replicas_hold_as_many_as_there_are() -> None:
    (grant,) = submit(ExpressPolicy(grown(a=2), Random(0)), write_set("s", "a0", replication=5))
    assert grant.chain == ("a0", "a1")


def test_a_writer_alone_in_its_rack_writes_to_two_others() -> None:
    topology = grown(a=1, b=4, c=4)
    (grant,) = submit(ExpressPolicy(topology, Random(0)), write_set("s", "a0"))
    assert set(racks_of(topology, grant)) == {"/b", "/c"}


def test_racks_too_small_for_the_rest_are_visited_one_after_the_other() -> None:
    topology = grown(a=2, b=1, c=1, d=1)
    (grant,) = submit(ExpressPolicy(topology, Random(0)), write_set("s", "a0", replication=4))
    assert racks_of(topology, grant)[0] == "/a" and len(set(grant.chain)) == 4


def test_a_rack_that_has_too_few_nodes_is_passed_over_for_one_that_has_enough() -> None:
    topology = grown(a=2, b=1, c=4)
    for seed in range(10):
        (grant,) = submit(ExpressPolicy(topology, Random(seed)), write_set("s", "a0"))
        assert racks_of(topology, grant) in (["/a", "/c", "/c"],)


THREE_LEVELS = """
[[switch]]
name = "core"
[[switch]]
name = "east"
uplink = "core"
bytes_s = 30e6
[[switch]]
name = "west"
uplink = "core"
bytes_s = 30e6
[[switch]]
name = "e1"
uplink = "east"
[[switch]]
name = "e2"
uplink = "east"
[[switch]]
name = "w1"
uplink = "west"
[[servers]]
rack = "e1"
names = ["a1", "a2", "a3"]
[[servers]]
rack = "e2"
names = ["b1", "b2", "b3"]
[[servers]]
rack = "w1"
names = ["c1", "c2", "c3"]
"""


def test_every_link_of_a_deep_tree_is_counted() -> None:
    """The halls are joined by links of 30 MB/s, which carry two streams; links within a hall carry six."""
    policy = ExpressPolicy(parse_toml(THREE_LEVELS), Random(0))
    grants = submit(policy, *(write_set(writer, writer, 4) for writer in ("a1", "b1", "c1")))
    assert grants
    for link, (taken, streams) in policy.loads().links.items():
        assert taken <= streams == (2 if "core" in link else 6)


def test_equally_cheap_ways_through_a_mesh_are_all_used() -> None:
    mesh = 'shape = "mesh"\nroot = "s1"\n' + "".join(
        f'[[switch]]\nname = "{name}"\n' for name in ("s1", "s2", "/a", "/b")
    )
    for leaf in ("/a", "/b"):
        mesh += f'[[servers]]\nrack = "{leaf}"\nnames = {[f"{leaf[1]}{n}" for n in range(9)]}\n'
        for spine in ("s1", "s2"):
            mesh += f'[[link]]\nbetween = ["{leaf}", "{spine}"]\nbytes_s = 45e6\n'
    policy = ExpressPolicy(parse_toml(mesh), Random(0))
    grants = submit(policy, *(write_set(f"s{n}", f"a{n}", 4) for n in range(3)))
    links = policy.loads().links
    assert len(grants) == 4 and links["/a", "s1"] == links["/a", "s2"] == (2, 2)


def test_hdfss_way_puts_the_first_replica_on_the_writer_while_it_has_a_slot() -> None:
    topology = paper_cluster()
    policy = ExpressPolicy(topology, Random(0), writer_holds_replica=True)
    grants = submit(policy, write_set("s", "n00", chunks=4))
    assert [grant.chain[0] == "n00" for grant in grants] == [True, True, False, False]
    for grant in grants:
        assert len(set(racks_of(topology, grant))) == 2


# -- order and waiting -----------------------------------------------------------------------------


def busy_cluster() -> tuple[ExpressPolicy, list[Grant]]:
    """Return four nodes with two free slots in total, so that one chunk of three replicas has to wait."""
    policy = ExpressPolicy(grown(a=4), Random(0))
    grants = submit(policy, write_set("first", None, chunks=2))
    assert len(grants) == 2
    return policy, grants


def test_the_set_with_the_least_left_goes_first() -> None:
    policy, grants = busy_cluster()
    assert submit(policy, write_set("large", None, 8), write_set("small", None, 1)) == []
    assert [grant.write_set for grant in finish(policy, grants[0])] == ["small"]


def test_a_set_that_has_waited_long_goes_before_a_smaller_one() -> None:
    policy, grants = busy_cluster()
    submit(policy, write_set("large", None, 3))
    long_after = 2 * CHUNK / AGE_BYTES_S + 0.1
    submit(policy, write_set("small", None, 1), now_s=long_after)
    assert [grant.write_set for grant in finish(policy, grants[0], now_s=long_after)] == ["large"]


def test_set_that_has_begun_is_finished_before_one_as_large() -> None:
    policy, grants = busy_cluster()
    submit(policy, write_set("later", None, 2))
    (begun,) = finish(policy, grants[0])
    submit(policy, write_set("newcomer", None, 2))
    assert [grant.write_set for grant in finish(policy, grants[1], now_s=1.0)] == ["later"]
    assert begun.write_set == "later"


def test_a_set_that_finds_no_room_lets_a_humbler_one_pass() -> None:
    policy, _ = busy_cluster()
    grants = submit(policy, write_set("three", None, 1), write_set("one", None, 1, replication=1))
    assert [grant.write_set for grant in grants] == ["one"]


def starve(policy: ExpressPolicy, until_s: float) -> float | None:
    """Return when a set of three replicas gets its first chunk, while small sets take every free slot.

    The small sets have one replica, and a chunk takes a second. Return None if there was none by `until_s`.
    """
    in_flight: deque[Grant] = deque()
    now_s, newcomers = 0.0, 0
    for _ in range(8):
        newcomers += 1
        in_flight.extend(submit(policy, WriteSet(f"n{newcomers}", None, 1, (MB,)), now_s=now_s))
    waiting = submit(policy, write_set("patient", None, chunks=1), now_s=now_s)
    assert len(in_flight) == 8 and not waiting
    while now_s < until_s:
        now_s += 1 / 8
        newcomers += 1
        ended = [Finished(in_flight.popleft().number)] if in_flight else []
        arrived = Submitted(WriteSet(f"n{newcomers}", None, 1, (MB,)))
        for grant in policy.handle([*ended, arrived], now_s):
            if grant.write_set == "patient":
                return now_s
            in_flight.append(grant)
    return None


def test_nobody_starves() -> None:
    """The bound in `express`: ageing puts a set in front, then patience gets it a chunk."""
    patience_s, chunk_s = 5.0, 1.0
    in_front_s = CHUNK / AGE_BYTES_S + BEGUN_S
    served_s = starve(ExpressPolicy(grown(a=4), Random(0), patience_s=patience_s), until_s=60.0)
    assert served_s is not None and served_s <= in_front_s + patience_s + chunk_s
    assert starve(ExpressPolicy(grown(a=4), Random(0), patience_s=1e9), until_s=60.0) is None


# -- small writes ----------------------------------------------------------------------------------


def test_small_chunks_never_wait_for_a_slot() -> None:
    policy, _ = busy_cluster()
    submit(policy, write_set("large", None, 5))
    small = WriteSet("small", "a0", 3, (small_chunk_bytes_max, 1000, 1) * 20)
    grants = submit(policy, small)
    assert len(grants) == 60 and all(len(set(grant.chain)) == 3 for grant in grants)
    before = policy.loads()
    finish(policy, *grants)
    assert policy.loads() == before


def test_the_small_chunks_of_a_set_go_ahead_of_its_large_ones() -> None:
    policy, _ = busy_cluster()
    grants = submit(policy, WriteSet("mixed", "a0", 3, (CHUNK, 1000, CHUNK, 500)))
    assert [grant.chunk for grant in grants] == [1, 3]


def test_small_bytes_are_spread() -> None:
    policy = ExpressPolicy(grown(a=10), Random(0))
    grants = submit(policy, WriteSet("s", None, 1, (1000,) * 200))
    received = Counter(node for grant in grants for node in grant.chain)
    assert max(received.values()) - min(received.values()) <= 8


# -- changes ---------------------------------------------------------------------------------------


def test_an_aborted_chunk_is_granted_again_without_the_node_that_failed() -> None:
    policy = ExpressPolicy(paper_cluster(), Random(0))
    (grant,) = submit(policy, write_set("s", "n00", 1))
    failed = grant.chain[1]
    (again,) = policy.handle([Aborted(grant.number, frozenset([failed]))], 1.0)
    assert again.chunk == grant.chunk and again.number != grant.number
    assert failed not in again.chain


def test_a_withdrawn_set_gets_nothing_more_and_gives_back_when_its_chunks_end() -> None:
    policy, grants = busy_cluster()
    submit(policy, write_set("large", None, 5))
    assert policy.handle([Withdrawn("large"), Withdrawn("nobody")], 1.0) == []
    assert finish(policy, *grants) == [] and policy.chunks_waiting == 0
    assert all(taken == 0 for taken, _ in policy.loads().slots.values())


def test_a_restated_set_keeps_its_age() -> None:
    policy, grants = busy_cluster()
    submit(policy, write_set("old", None, 1), now_s=0.0)
    submit(policy, write_set("new", None, 2), now_s=10.0)
    submit(policy, write_set("old", None, 3), now_s=10.0)
    assert [grant.write_set for grant in finish(policy, grants[0], now_s=10.0)] == ["old"]


def test_a_node_that_comes_takes_its_share_and_one_that_goes_gets_nothing() -> None:
    topology = grown(a=4, b=4)
    policy = ExpressPolicy(topology, Random(0))
    grants = submit(policy, write_set("s", "a0", 8))
    changed = topology.without_server("b0").with_server("b9", "/b")
    more = policy.handle([Changed(changed)], 1.0)
    more += finish(policy, *grants)
    nodes = {node for grant in more for node in grant.chain}
    assert more and "b0" not in nodes and "b9" in nodes
    finish(policy, *more)
    assert all(taken == 0 for taken, _ in policy.loads().slots.values())


def test_an_empty_cluster_grants_nothing_until_nodes_come() -> None:
    policy = ExpressPolicy(Topology(), Random(0))
    assert submit(policy, write_set("s", None, 1), WriteSet("t", "a0", 3, (10,))) == []
    grants = policy.handle([Changed(grown(a=3))], 1.0)
    assert sorted(grant.write_set for grant in grants) == ["s", "t"]


def test_chunks_of_a_set_go_small_first_and_then_the_largest() -> None:
    policy = ExpressPolicy(paper_cluster(), Random(0))
    sizes = (60 * MB, 1000, 64 * MB, 2000, 62 * MB, 64 * MB)
    granted = policy.handle([Submitted(WriteSet("s", "n00", 3, sizes))], 0.0)
    assert [grant.chunk for grant in granted] == [1, 3, 2, 5, 4, 0]
