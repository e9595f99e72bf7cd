"""Datanodes that are much slower than others: when and how long they count as slow; writes never depend on it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.play import USAGE, registration
from support.slow_play import NODES, SlowPlay

from peacefs.coordinator.cluster.slow_peers import (
    Slowness,
    SlowPart,
    avoidable,
    find_outliers,
    slow_avoided_fraction_max,
    slow_pardon_s,
)
from peacefs.protocol.messages import Heartbeat, LatencySample


# Written by hand: the measurements, and which datanodes are slow.
@pytest.mark.parametrize(
    ("measured", "slow"),
    [
        ([0.01, 0.01, 0.01, 0.9], [3]),
        ([0.01, 0.02, 0.015, 0.09], []),  # nine times the median, and fast all the same
        ([0.2, 0.25, 0.3, 0.5], []),  # all are slow: none is slower
        ([0.2, 0.25, 0.3, 2.5], [3]),
        ([0.01, 0.9], []),  # too few datanodes to compare
        ([0.01, 0.01, 0.5, 0.6, 0.01], [2, 3]),
        ([0.1, 0.3, 0.5, 0.7, 1.4], []),  # widely spread: within three deviations
        ([], []),
    ],
)
def test_slow_peer_is_far_above_the_median(measured: list[float], slow: list[int]) -> None:
    assert find_outliers({str(at): seconds for at, seconds in enumerate(measured)})[1] == [str(at) for at in slow]


@given(
    st.dictionaries(st.sampled_from(NODES), st.sampled_from(["/a", "/b", "/c"])),
    st.lists(st.sampled_from(NODES), unique=True),
    st.integers(1, 4),
)
def test_slow_peer_that_is_avoided_is_never_needed(
    racks: dict[str, str], slow: list[str], replication: int
) -> None:
    avoided = avoidable(slow, racks, replication)
    assert avoided <= set(slow) & set(racks)
    assert len(avoided) <= slow_avoided_fraction_max * len(racks)
    left = racks.keys() - avoided
    if avoided:
        assert len(left) >= replication
        assert len({racks[node] for node in left}) >= min(2, len(set(racks.values())))


class WritingPlay(SlowPlay):
    writing = True

    def pass_time(self, seconds: float) -> list[Slowness]:
        news = []
        for _ in range(round(seconds)):
            self.now_s += 1.0
            for node in NODES:
                samples = self.samples(node) if self.writing else []
                self.cluster.heartbeat(self.now_s, node, Heartbeat(USAGE, samples=samples))
            news += self.cluster.tick(self.now_s, 0).slowness
        return news

    def places(self, replication: int = 3, exclude: frozenset[str] = frozenset()) -> set[str]:
        used: set[str] = set()
        for chunk in range(60):
            nodes = self.cluster.place(self.now_s, chunk, None, replication, exclude, 60.0)
            assert len(nodes) == replication
            used |= {node.id for node in nodes}
            self.cluster.write_ended(chunk)
        return used


def test_slow_peer_is_reported_once_and_avoided_and_forgiven_when_it_is_not_found_slow_again() -> None:
    play = WritingPlay()
    assert play.pass_time(20) == []
    play.hop_s["dn-3"] = 1.5
    assert play.pass_time(60) == [Slowness("dn-3", SlowPart.HOP, True, 1.5, 0.01)]
    assert play.cluster.slow_peers.slow() == ["dn-3"]
    assert play.places() == set(NODES) - {"dn-3"}
    # Nothing is written there any more, so there are no measurements.
    play.writing = False
    assert play.pass_time(slow_pardon_s - 10) == []
    assert [found.is_slow for found in play.pass_time(20)] == [False]
    assert play.places() == set(NODES)


def test_a_slow_disk_is_a_matter_of_its_own() -> None:
    play = WritingPlay()
    play.disk_s["dn-5"] = 0.7
    (found,) = play.pass_time(60)
    assert (found.node, found.part) == ("dn-5", SlowPart.DISK)
    assert play.cluster.slow_peers.slow_parts("dn-5") == [SlowPart.DISK]


def test_once_is_not_enough_nor_is_one_predecessor() -> None:
    play = WritingPlay()
    play.pass_time(20)
    play.hop_s["dn-3"] = 1.5
    play.pass_time(5)
    play.hop_s["dn-3"] = 0.01
    assert play.pass_time(60) == []
    bad_link = [LatencySample("dn-3", 5.0, 9), LatencySample("dn-2", 0.01, 9)]
    for _ in range(30):
        play.pass_time(1)
        play.cluster.heartbeat(play.now_s, "dn-1", Heartbeat(USAGE, samples=bad_link))
        assert play.cluster.tick(play.now_s, 0).slowness == []


def test_it_is_used_all_the_same_where_it_is_needed() -> None:
    play = WritingPlay()
    play.hop_s |= {"dn-1": 2.0, "dn-3": 1.0}
    play.pass_time(30)
    assert play.cluster.slow_peers.slow() == ["dn-1", "dn-3"]
    assert play.places() == set(NODES) - {"dn-1", "dn-3"}
    assert "dn-3" in play.places(replication=5), "the slower of the two is left out"
    assert play.places(replication=6) == set(NODES)
    # The two are the last ones in the rack of odd numbers.
    assert {"dn-1", "dn-3"} & play.places(exclude=frozenset({"dn-5"}))


def test_one_that_starts_anew_begins_without_a_past() -> None:
    play = WritingPlay()
    play.hop_s["dn-3"] = 1.5
    play.pass_time(30)
    play.cluster.register(play.now_s, registration("dn-3", "/rack-0"))
    assert play.cluster.slow_peers.slow() == []
