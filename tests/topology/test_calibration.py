"""From rates to streams: the numbers that policies admit by."""

from __future__ import annotations

import pytest

from peacefs.topology.calibration import calibrate
from peacefs.topology.model import Topology
from peacefs.topology.rate_curve import PAPER_DISK, RateCurve

SSD = RateCurve(((1, 400e6), (8, 900e6)))


def two_racks(disk: RateCurve = PAPER_DISK, *, slow: float = 1.0) -> Topology:
    topology = Topology()
    for n in range(6):
        topology = topology.with_server(f"n{n}", f"/rack-{n % 2}", disk=disk.scaled(slow) if n == 0 else disk)
    return topology


def test_the_papers_disks_take_two_streams_and_its_links_six() -> None:
    found = calibrate(two_racks())
    assert set(found.slots.values()) == {2}
    assert found.stream_bytes_s == 22.5e6
    assert set(found.link_streams.values()) == {6}
    assert not found.network_bound


def test_a_node_at_a_quarter_of_the_speed_gets_nothing() -> None:
    found = calibrate(two_racks(slow=0.25))
    assert found.slots == {"n0": 0} | {f"n{n}": 2 for n in range(1, 6)}
    assert found.stream_bytes_s == 22.5e6, "what the others can do is not learnt from it"


def test_a_node_at_half_the_speed_gets_its_share() -> None:
    assert calibrate(two_racks(slow=0.5)).slots["n0"] == 2


def test_network_card_slower_than_the_disk_sets_the_rate() -> None:
    found = calibrate(two_racks(SSD))
    assert found.network_bound
    assert set(found.slots.values()) == {3}
    assert found.stream_bytes_s == pytest.approx(125e6 / 3)
    assert set(found.link_streams.values()) == {3}


def test_an_empty_cluster_can_be_calibrated() -> None:
    assert calibrate(Topology()).slots == {}


def test_a_disk_is_linear_between_what_was_measured_and_flat_outside() -> None:
    rates = [PAPER_DISK.rate(streams) for streams in (0, 1, 2, 3, 4, 16, 99)]
    assert rates == [30e6, 30e6, 45e6, 43e6, 41e6, 41e6, 41e6]
    assert PAPER_DISK.best_streams == 2
