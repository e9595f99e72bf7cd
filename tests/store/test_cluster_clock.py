"""A datanode checks tokens by the coordinator's clock, whatever its own clock shows."""

from __future__ import annotations

from peacefs.datanode.cluster_clock import ClusterClock


class Clocks:
    """This machine's clocks: a monotonic one, and one that can be set."""

    def __init__(self) -> None:
        self.even_s = 50.0
        self.wall_s = 1000.0
        self.cluster = ClusterClock(lambda: self.even_s, lambda: self.wall_s)


def test_before_the_coordinator_was_heard_its_own_clock_is_all_there_is() -> None:
    clocks = Clocks()
    assert clocks.cluster.now_s() == 1000.0


def test_cluster_clock_goes_on_evenly_while_its_own_clock_jumps() -> None:
    clocks = Clocks()
    clocks.cluster.heard(7000.0)
    clocks.even_s += 5
    clocks.wall_s -= 100_000
    assert clocks.cluster.now_s() == 7005.0


def test_the_coordinators_clock_is_followed_back_and_forth() -> None:
    clocks = Clocks()
    for shown_s in (7000.0, 10.0, 9000.0):
        clocks.cluster.heard(shown_s)
        assert clocks.cluster.now_s() == shown_s
