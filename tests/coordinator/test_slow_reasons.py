"""A slow datanode is reported with the likely reason and what to do."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from support.play import USAGE
from support.slow_play import NODES, SlowPlay

from peacefs.coordinator.cluster.slow_peers import SlowPart
from peacefs.coordinator.cluster.slow_reasons import slow_reasons
from peacefs.protocol.messages import DiskReport, Heartbeat, Usage
from peacefs.protocol.values.cluster_status import SlowReason

VICTIM = "dn-3"
FULL = DiskReport("/data/2", "working", "", 100, 97, 7)
WELL = DiskReport("/data/1", "working", "", 100, 40, 7)


class ReasonsPlay(SlowPlay):
    """One datanode is the victim; the others may measure different times for it."""

    def __init__(self) -> None:
        super().__init__()
        self.disk_s = dict.fromkeys(NODES, 0.012)
        #: Times by reporter.
        self.victim_s: Mapping[str, float] = {}
        self.disks: list[DiskReport] = [WELL]
        self.usage: dict[str, Usage] = {}

    def found_s(self, reporter: str, other: str) -> float:
        usual_s = super().found_s(reporter, other)
        return self.victim_s.get(reporter, usual_s) if other == VICTIM else usual_s

    def let_be_slow(self, seconds: int = 60) -> list[SlowReason]:
        for _ in range(seconds):
            self.now_s += 1.0
            for node in NODES:
                beat = Heartbeat(self.usage.get(node, USAGE), samples=self.samples(node), disks=self.disks)
                self.cluster.heartbeat(self.now_s, node, beat)
            self.cluster.tick(self.now_s, 0)
        return self.reasons()

    def reasons(self) -> list[SlowReason]:
        node = self.cluster.members.get(VICTIM)
        assert node is not None
        return slow_reasons(self.cluster, node, self.now_s)


def test_slow_reason_of_a_hop_is_the_way_to_it_where_its_disk_is_as_others() -> None:
    play = ReasonsPlay()
    assert play.let_be_slow(20) == []
    play.hop_s[VICTIM] = 1.5
    (found,) = play.let_be_slow()
    assert (found.part, found.seconds, found.median, found.compared) == ("hop", 1.5, 0.01, 6)
    assert (found.chunks, found.measured_by) == (27, ["dn-1", "dn-2", "dn-6"])
    assert 45 <= found.since_s <= 60 and found.found_s <= 5
    assert found.reason == "Its disk is not slow, 0.012 s a MiB: what is slow is the way to it, or its processor."
    assert "network card" in found.advice and "dn-3.example" in found.advice


def test_slow_reason_of_a_hop_is_its_disk_where_that_is_slow_too() -> None:
    play = ReasonsPlay()
    play.hop_s[VICTIM], play.disk_s[VICTIM] = 1.5, 1.4
    hop, disk = play.let_be_slow()
    assert (hop.part, hop.reason) == ("hop", "Its disk is slow, too, and holds up what passes through it.")
    assert (disk.part, disk.measured_by) == ("disk", [VICTIM])
    assert disk.reason.startswith("Its disk takes long to write and to fsync")
    assert "smartctl" in disk.advice and "peacefs doctor" in disk.advice


def test_slow_reason_of_a_hop_is_the_way_between_racks_where_its_own_rack_does_not_find_so() -> None:
    play = ReasonsPlay()
    # dn-1 is in the victim's rack; dn-2 and dn-6 are in the other one.
    play.victim_s = {"dn-1": 0.01, "dn-2": 2.0, "dn-6": 2.4}
    (found,) = play.let_be_slow()
    assert found.reason == (
        "Datanodes of other racks wait for it, 2.200 s a MiB, those of its own rack do not, 0.010: the way "
        "between the racks is slow."
    )
    assert found.advice == "Look at the uplink of /rack-0 and its switch."


@pytest.mark.parametrize(
    ("disks", "reason", "advice"),
    [
        ([WELL, FULL], "Its disk /data/2 is 97% full", "peacefs balance"),
        (
            [WELL, DiskReport("/data/2", "read-only", "it says no", 100, 40, 7)],
            "/data/2 is read-only: it says no.",
            "See what is said of that disk",
        ),
        ([WELL, WELL], "One of its 2 disks takes long", "smartctl"),
    ],
)
def test_slow_reason_at_a_disk_is_what_is_known_of_it(disks: list[DiskReport], reason: str, advice: str) -> None:
    play = ReasonsPlay()
    play.disk_s[VICTIM], play.disks = 0.9, disks
    (found,) = play.let_be_slow()
    assert found.part == "disk" and reason in found.reason and advice in found.advice


def test_slow_reason_is_the_machine_where_its_heartbeats_are_late() -> None:
    play = ReasonsPlay()
    play.disk_s[VICTIM] = 0.9
    play.let_be_slow()
    play.now_s += 2.5
    (found,) = play.reasons()
    assert found.reason.startswith("Its last heartbeat is 2.5 s old") and "processor, memory" in found.advice


def test_slow_reason_tells_besides_that_it_has_much_more_to_do() -> None:
    play = ReasonsPlay()
    play.disk_s[VICTIM] = 0.9
    play.usage = dict.fromkeys(NODES, USAGE) | {VICTIM: Usage(1 << 40, 0, 1 << 39, streams=12)}
    (found,) = play.let_be_slow()
    assert found.reason.endswith("12 chunks are being written through it, through others 0 in the median.")


def test_slow_reason_ends_with_the_slowness() -> None:
    play = ReasonsPlay()
    play.disk_s[VICTIM] = 0.9
    assert len(play.let_be_slow()) == 1
    play.disk_s[VICTIM] = 0.012
    assert play.let_be_slow(130) == []
    play.disk_s[VICTIM] = 0.9
    (found,) = play.let_be_slow(30)
    assert found.since_s < 30, "an earlier time is forgotten"
    assert play.cluster.slow_peers.slow_parts(VICTIM) == [SlowPart.DISK]
