"""`timely`: bulk comes last and keeps to half of the slots, small sets pass, and nobody waits without a bound.

The tests count streams and slots from the grants. Some also run `express`, to show the problem that `timely`
solves.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_runs import often

from peacefs.peace.policies.express import ExpressPolicy
from peacefs.peace.policies.interface import Finished, Policy, Submitted
from peacefs.peace.policies.ledger import Grant, WriteSet
from peacefs.peace.policies.saturation import Saturation
from peacefs.peace.policies.timely import DUE_S, QUIET_S, SMALL_SET_BYTES, TimelyPolicy
from peacefs.peace.simulator.recurrent_load import BulkWriters
from peacefs.peace.simulator.scenarios import paper_cluster, star
from peacefs.peace.simulator.simulate import Arrival, Simulation
from peacefs.protocol.values.write_classes import WriteClass
from peacefs.topology.rate_curve import MB, RateCurve

CHUNK = 64 * MB
#: The paper's disks are fastest with two streams, so each node has two slots.
SLOTS = 2


def chunks(
    name: str, count: int, write_class: WriteClass = WriteClass.BLOCKING, writer: str | None = None
) -> WriteSet:
    return WriteSet(name, writer, 3, (CHUNK,) * count, write_class=write_class)


def submit(policy: Policy, *sets: WriteSet, now_s: float = 0.0) -> list[Grant]:
    return policy.handle([Submitted(each) for each in sets], now_s)


def finish(policy: Policy, *grants: Grant, now_s: float) -> list[Grant]:
    return policy.handle([Finished(grant.number) for grant in grants], now_s)


def streams(grants: list[Grant]) -> Counter[str]:
    return Counter(node for grant in grants for node in grant.chain)


def endless_bulk(policy: Policy, count: int, now_s: float = 0.0) -> list[Grant]:
    """Bulk writers outside the cluster, each with more than it can ever write here."""
    return submit(policy, *(chunks(f"bulk {each}", 99, WriteClass.BULK) for each in range(count)), now_s=now_s)


# -- bulk last -------------------------------------------------------------------------------------


def test_bulk_leaves_a_slot_of_each_disk_while_urgent_sets_come() -> None:
    policy = TimelyPolicy(paper_cluster(), Random(1))
    urgent = submit(policy, chunks("urgent", 1))
    bulk = endless_bulk(policy, 16)
    assert bulk and max(streams(bulk).values()) == 1
    assert len(finish(policy, *urgent, now_s=1.0)) <= 1


def test_bulk_may_use_all_slots_when_nothing_urgent_has_come_for_long() -> None:
    policy = TimelyPolicy(paper_cluster(), Random(1))
    urgent = submit(policy, chunks("urgent", 1))
    finish(policy, *urgent, now_s=1.0)
    assert max(streams(endless_bulk(policy, 16, now_s=QUIET_S + 1)).values()) == SLOTS


def test_an_urgent_set_finds_room_beside_endless_bulk() -> None:
    """Beside `express`, where bulk writers have taken all slots."""
    for made, expected in ((TimelyPolicy, 1), (ExpressPolicy, 0)):
        policy = made(paper_cluster(), Random(1))
        finish(policy, *submit(policy, chunks("first", 1)), now_s=0.1)
        endless_bulk(policy, 16, now_s=0.2)
        assert len(submit(policy, chunks("urgent", 1), now_s=0.3)) == expected


def test_a_set_is_served_before_less_urgent_ones_of_any_size_and_age() -> None:
    policy = TimelyPolicy(paper_cluster(), Random(1), small_sets_pass=False)
    fill = submit(policy, *(chunks(f"fill {each}", 4, writer=f"n{each:02}") for each in range(17)))
    submit(policy, chunks("bulk", 1, WriteClass.BULK))
    submit(policy, chunks("due", 2, WriteClass.DUE), now_s=0.1)
    submit(policy, chunks("blocking", 3), now_s=0.2)
    order: list[str] = []
    in_flight = list(fill)
    now_s = 0.3
    while in_flight:
        now_s += 0.01
        new = finish(policy, in_flight.pop(0), now_s=now_s)
        in_flight += new
        order += [each.write_set for each in new if not each.write_set.startswith("fill")]
    assert order.index("due") > order.index("blocking")
    assert order.index("bulk") > order.index("due")


@settings(max_examples=often(30, 400), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("bbuude"), st.integers(0, 5), st.floats(0.01, 3.0)), min_size=10, max_size=120
    ),
    st.integers(0, 1000),
)
def test_whatever_happens_bulk_keeps_to_its_half_and_no_disk_gets_a_second_stream_too_many(
    steps: list[tuple[str, int, float]], seed: int
) -> None:
    topology = star(3, 4, 1.0)
    policy = TimelyPolicy(topology, Random(seed))
    now_s, names = 0.0, 0
    in_flight: dict[int, Grant] = {}
    classes: dict[str, WriteClass] = {}
    kinds = {"b": WriteClass.BULK, "u": WriteClass.BLOCKING, "d": WriteClass.DUE}
    for grant in submit(policy, chunks("first", 1)):
        in_flight[grant.number] = grant
    classes["first"] = WriteClass.BLOCKING
    for kind, number, elapsed_s in steps:
        now_s = min(now_s + elapsed_s, QUIET_S - 1)
        if kind == "e":
            ended = list(in_flight)[: number + 1]
            new = policy.handle([Finished(each) for each in ended], now_s)
            for each in ended:
                del in_flight[each]
        else:
            names += 1
            name = f"s{names}"
            classes[name] = kinds[kind]
            size = (CHUNK, 3 * MB, CHUNK, CHUNK // 2, 8 * MB, CHUNK)[number]
            made = WriteSet(name, None, 3, (size,) * (number + 1), write_class=classes[name])
            new = policy.handle([Submitted(made)], now_s)
        taken = streams(list(in_flight.values()))
        for each in new:
            taken.update(each.chain)
            assert each.chunk_bytes <= SMALL_SET_BYTES or all(taken[node] <= SLOTS for node in each.chain)
        in_flight |= {each.number: each for each in new}
        bulk = streams([each for each in in_flight.values() if classes[each.write_set] is WriteClass.BULK])
        assert now_s >= 30 or max(bulk.values(), default=0) <= SLOTS // 2
        assert max(streams(list(in_flight.values())).values(), default=0) <= SLOTS + 1


# -- no wait without a bound -----------------------------------------------------------------------


def longest_wait_s(policy: Policy, write_class: WriteClass, until_s: float, due_s: float | None = None) -> float:
    """When a set of this class gets its chunk, if blocking sets wait all the time; a chunk takes a second."""
    in_flight: list[tuple[float, Grant]] = []
    now_s, names = 0.0, 0
    while now_s < until_s:
        ended = [each for end_s, each in in_flight if end_s <= now_s]
        in_flight = [pair for pair in in_flight if pair[0] > now_s]
        names += 1
        arrivals = [Submitted(chunks(f"new {names}", 12, writer=f"n{names % 17:02}"))]
        if names == 10:
            waiting = WriteSet("waiting", "n00", 3, (CHUNK,), write_class=write_class, due_s=due_s)
            arrivals.append(Submitted(waiting))
            asked_s = now_s
        for grant in policy.handle([*(Finished(each.number) for each in ended), *arrivals], now_s):
            if grant.write_set == "waiting":
                return now_s - asked_s
            in_flight.append((now_s + 1.0, grant))
        now_s += 0.25
    return float("inf")


def test_bulk_gets_a_chunk_within_its_patience_and_the_time_of_a_chunk() -> None:
    patience_s, chunk_s, step_s = 5.0, 1.0, 0.25
    policy = TimelyPolicy(paper_cluster(), Random(3), patience_s=patience_s)
    assert longest_wait_s(policy, WriteClass.BULK, 60.0) <= patience_s + chunk_s + 2 * step_s
    assert longest_wait_s(TimelyPolicy(paper_cluster(), Random(3), patience_s=1e9), WriteClass.BULK, 60.0) > 60.0


@pytest.mark.parametrize(("due_s", "blocking_after_s"), [(None, DUE_S), (8.0, 4.0)])
def test_a_due_set_counts_as_blocking_when_half_of_its_time_has_passed(
    due_s: float | None, blocking_after_s: float
) -> None:
    """A blocking set that is smaller than all others, and older than most, waits for no more than a chunk."""
    policy = TimelyPolicy(paper_cluster(), Random(3), small_sets_pass=False)
    waited_s = longest_wait_s(policy, WriteClass.DUE, 60.0, due_s)
    assert blocking_after_s - 2.25 - 1.0 <= waited_s <= blocking_after_s + 1.5


# -- small sets pass -------------------------------------------------------------------------------


def full(policy: Policy) -> list[Grant]:
    """Large sets of all nodes have all slots, and more of their chunks wait."""
    return submit(policy, *(chunks(f"large {each}", 9, writer=f"n{each:02}") for each in range(17)))


def small(name: str) -> WriteSet:
    return WriteSet(name, "n03", 3, (SMALL_SET_BYTES,))


def test_a_small_set_passes_with_one_more_stream_on_each_disk() -> None:
    policy = TimelyPolicy(paper_cluster(), Random(1))
    taken = full(policy)
    passed = submit(policy, small("small"), now_s=1.0)
    assert [each.write_set for each in passed] == ["small"]
    assert max(streams([*taken, *passed]).values()) == SLOTS + 1
    express = ExpressPolicy(paper_cluster(), Random(1))
    full(express)
    assert submit(express, small("small"), now_s=1.0) == []


def test_a_node_with_one_slot_never_gets_a_second_stream() -> None:
    slow = RateCurve(((1, 30.0 * MB), (2, 20.0 * MB)))
    policy = TimelyPolicy(paper_cluster(slow), Random(1))
    taken = full(policy)
    assert max(streams(taken).values()) == 1
    assert submit(policy, small("small"), now_s=1.0) == []


def test_no_small_set_passes_when_the_queue_has_not_been_empty_for_minutes() -> None:
    policy = TimelyPolicy(paper_cluster(), Random(1))
    full(policy)
    for now_s in range(1, 400):
        policy.handle([], float(now_s))
    assert policy.waiting_share is not None and policy.waiting_share > 0.99
    assert submit(policy, small("small"), now_s=400.0) == []


@given(st.lists(st.tuples(st.floats(0.0, 50.0), st.booleans()), min_size=2, max_size=30))
def test_saturation_is_the_weighted_share_of_the_time_in_which_something_waited(
    seen: list[tuple[float, bool]],
) -> None:
    """Against a sum over small steps of time, the younger the heavier."""
    saturation, now_s, spans = Saturation(), 0.0, []
    for elapsed_s, waits in seen:
        saturation.see(now_s, waits=waits)
        spans.append((now_s, now_s + elapsed_s, waits))
        now_s += elapsed_s
    saturation.see(now_s, waits=False)
    steps, expected = 400, 0.0
    for begin_s, end_s, waits in spans:
        for step in range(steps if waits else 0):
            middle_s = begin_s + (end_s - begin_s) * (step + 0.5) / steps
            expected += (end_s - begin_s) / steps / 60.0 * 2.718281828 ** (-(now_s - middle_s) / 60.0)
    assert saturation.share == pytest.approx(expected, abs=1e-3)


# -- in the model ----------------------------------------------------------------------------------


def longest_s(made: type[ExpressPolicy], seed: int) -> float:
    """Return the longest time of a small set. One is written every second beside eight endless bulk writers."""
    topology = star(4, 4, 1.0)
    bulk = BulkWriters(topology, Random(seed), 8)
    names = sorted(topology.servers)
    sets = [Arrival(5.0 + n, WriteSet(f"s{n}", names[n % 16], 3, (4 * MB,))) for n in range(60)]
    run = Simulation(topology, made(topology, Random(seed)), [*bulk.first(), *sets], follow=bulk.next)
    times = run.run_until(90.0)
    return max(times[each.write_set.name].from_request_s for each in sets)


@pytest.mark.parametrize("seed", range(often(2, 20)))
def test_endless_bulk_does_not_starve_small_sets(seed: int) -> None:
    """4 MB take 0.13 s on an idle disk of 30 MB/s. Beside bulk a disk has up to three streams. A third of
    43 MB/s is left for each, and a client that others share takes a while longer.
    """
    print(f"seed {seed}")
    assert longest_s(TimelyPolicy, seed) < 4 * 0.13 * 1.25
    assert longest_s(ExpressPolicy, seed) > 4 * 0.13 * 4
