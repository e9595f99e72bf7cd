"""The simulator that judges policies: rates, times and bounds that can be computed by hand."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peacefs.peace.policies.interface import Policy
from peacefs.peace.policies.ledger import Grant, WriteSet
from peacefs.peace.policies.random import RandomPolicy
from peacefs.peace.simulator.bounds import bounds
from peacefs.peace.simulator.fluid import max_min_rates
from peacefs.peace.simulator.scenarios import paper_cluster
from peacefs.peace.simulator.simulate import Arrival, simulate
from peacefs.topology.model import Topology

MB = 1_000_000


class FixedPolicy(Policy):
    """Grants everything at once, with one pipeline per set."""

    def __init__(self, chains: dict[str, tuple[str, ...]], at_once: int = 99) -> None:
        super().__init__()
        self._chain_of = chains
        self._at_once = at_once

    def _use(self, topology: Topology) -> None:
        raise AssertionError("the network stays as it is")

    def _release(self, grant: Grant) -> None:
        """Do nothing, because nothing was reserved."""

    def _take_over(self, grant: Grant) -> None:
        """Take over nothing."""

    def _admit(self, now_s: float) -> list[Grant]:
        grants = []
        for pending in self._ledger.pending():
            while pending.waiting and pending.in_flight < self._at_once:
                grants.append(self._ledger.grant(pending, self._chain_of[pending.write_set.name]))
        return grants


def run(sets: dict[str, tuple[str, tuple[str, ...], int]], at_once: int = 99) -> dict[str, tuple[float, float]]:
    """Simulate sets as (writer, pipeline, chunks of 64 MB). Return each set's times since its request, and the
    span.
    """
    arrivals = [
        Arrival(0.0, WriteSet(name, writer, len(chain), (64 * MB,) * chunks))
        for name, (writer, chain, chunks) in sets.items()
    ]
    policy = FixedPolicy({name: chain for name, (_, chain, _) in sets.items()}, at_once)
    times = simulate(paper_cluster(), policy, arrivals)
    return {name: (each.from_request_s, each.span_s) for name, each in times.items()}


def test_a_lone_chunk_is_as_fast_as_one_stream_on_a_disk() -> None:
    assert run({"s": ("n00", ("n01", "n08", "n09"), 1)})["s"][0] == pytest.approx(64 / 30)


def test_two_streams_on_a_disk_share_its_best_rate() -> None:
    times = run({"s": ("n00", ("n01",), 1), "t": ("n02", ("n01",), 1)})
    assert times["s"][0] == times["t"][0] == pytest.approx(64 / 22.5)


def test_chunks_one_after_the_other_lose_the_time_until_the_next_grant() -> None:
    assert run({"s": ("n00", ("n01",), 3)}, at_once=1)["s"][0] == pytest.approx(3 * 64 / 30 + 2 * 0.02)


def test_eight_writers_share_the_link_between_the_racks() -> None:
    sets = {f"s{n}": (f"n{n:02}", (f"n{8 + n:02}",), 1) for n in range(8)}
    assert run(sets)["s0"][0] == pytest.approx(64 * 8 / 125)


def test_a_client_sends_more_with_more_threads_but_no_more_than_four_can() -> None:
    """Five chunks of one writer to five disks: 105 MB/s in total."""
    topology = paper_cluster()
    arrivals = [Arrival(0.0, WriteSet("s", "n00", 1, (64 * MB,) * 5))]

    class Spread(FixedPolicy):
        def _admit(self, now_s: float) -> list[Grant]:
            return [
                self._ledger.grant(pending, (f"n{1 + pending.waiting[0]:02}",))
                for pending in self._ledger.pending()
                for _ in range(len(pending.waiting))
            ]

    assert simulate(topology, Spread({}), arrivals)["s"].done_s == pytest.approx(5 * 64 / 105)


def test_a_chunk_written_by_its_own_node_uses_no_link() -> None:
    assert run({"s": ("n00", ("n00",), 1)})["s"][0] == pytest.approx(64 / 30)


def test_span_begins_with_the_first_grant() -> None:
    class Late(FixedPolicy):
        def _admit(self, now_s: float) -> list[Grant]:
            return super()._admit(now_s) if now_s >= 5 else []

    arrivals = [
        Arrival(1.0, WriteSet("s", "n00", 1, (64 * MB,))),
        Arrival(5.0, WriteSet("t", "n02", 1, (64 * MB,))),
    ]
    times = simulate(paper_cluster(), Late({"s": ("n01",), "t": ("n03",)}), arrivals)
    assert times["s"].from_request_s == pytest.approx(4 + 64 / 30)
    assert times["s"].span_s == pytest.approx(64 / 30)


def test_a_policy_that_falls_asleep_is_found_out() -> None:
    class Asleep(FixedPolicy):
        def _admit(self, now_s: float) -> list[Grant]:
            return []

    with pytest.raises(AssertionError, match="left chunks waiting"):
        simulate(paper_cluster(), Asleep({}), [Arrival(0.0, WriteSet("s", "n00", 1, (1,)))])


@given(
    st.dictionaries(st.integers(0, 30), st.lists(st.integers(0, 9), min_size=1, unique=True), min_size=1),
    st.lists(st.floats(1.0, 100.0), min_size=10, max_size=10),
)
def test_max_min_rates_fill_what_they_can_and_are_fair(flows: dict[int, list[int]], room: list[float]) -> None:
    """No resource is over capacity; each flow has a saturated resource on which it has the largest share."""
    rates = max_min_rates(flows, lambda resource, _: room[resource])
    used = [sum(rates[flow] for flow in flows if resource in flows[flow]) for resource in range(10)]
    assert all(total <= limit * (1 + 1e-9) for total, limit in zip(used, room, strict=True))
    for flow, resources in flows.items():
        assert any(
            used[resource] >= room[resource] * (1 - 1e-9)
            and all(rates[flow] >= rates[other] * (1 - 1e-9) for other in flows if resource in flows[other])
            for resource in resources
        )


# -- bounds ----------------------------------------------------------------------------------------


def test_the_makespan_cannot_be_less_than_the_busiest_link_needs() -> None:
    arrivals = [Arrival(0.0, WriteSet(f"s{n}", f"n{n:02}", 3, (64 * MB,) * 8)) for n in range(8)]
    assert bounds(paper_cluster(), arrivals).makespan_s == pytest.approx(8 * 512 / 125)


def test_the_makespan_cannot_be_less_than_the_disks_need() -> None:
    arrivals = [Arrival(0.0, WriteSet(f"s{n}", f"n{n:02}", 17, (64 * MB,) * 8)) for n in range(17)]
    assert bounds(paper_cluster(), arrivals).makespan_s == pytest.approx(17 * 17 * 512 / (17 * 45))


def test_a_set_alone_takes_its_own_time() -> None:
    one = [Arrival(3.0, WriteSet("s", "n00", 1, (64 * MB,)))]
    assert bounds(paper_cluster(), one).mean_s == pytest.approx(64 / 30)
    assert bounds(paper_cluster(), one).makespan_s == pytest.approx(3 + 64 / 30)
    many = [Arrival(0.0, WriteSet("s", "n00", 1, (64 * MB,) * 20))]
    assert bounds(paper_cluster(), many).mean_s == pytest.approx(20 * 64 / 105)


def test_the_mean_is_bounded_by_serving_the_shortest_first() -> None:
    """Two sets of one rack, 1,024 and 2,048 MB, over 125 MB/s: done after 8.192 and 24.576 s at the earliest
    on the link; and not before 9.752 and 19.505 s at 105 MB/s each.
    """
    arrivals = [
        Arrival(0.0, WriteSet("long", "n00", 3, (64 * MB,) * 32)),
        Arrival(0.0, WriteSet("short", "n01", 3, (64 * MB,) * 16)),
    ]
    assert bounds(paper_cluster(), arrivals).mean_s == pytest.approx((1024 / 105 + 3072 / 125) / 2)


@given(st.integers(0, 10_000))
def test_no_run_beats_its_bounds(seed: int) -> None:
    rng = Random(seed)
    topology = paper_cluster()
    arrivals = [
        Arrival(
            rng.uniform(0, 5),
            WriteSet(writer, writer, rng.randint(1, 4), (rng.randint(1, 90) * MB,) * rng.randint(1, 4)),
        )
        for writer in rng.sample(sorted(topology.servers), rng.randint(1, 6))
    ]
    least = bounds(topology, arrivals)
    times = simulate(topology, RandomPolicy(topology, rng), arrivals)
    assert sum(each.from_request_s for each in times.values()) / len(times) >= least.mean_s * (1 - 1e-9)
    assert max(each.done_s for each in times.values()) >= least.makespan_s * (1 - 1e-9)
