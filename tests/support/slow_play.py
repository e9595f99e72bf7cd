"""Simulated datanodes that measure each other, some of them slow."""

from __future__ import annotations

from peacefs.protocol.messages import LatencySample

from .play import Play

NODES = [f"dn-{number}" for number in range(1, 7)]


class SlowPlay(Play):
    """Six datanodes in two racks. Each measures three others and its own disk."""

    def __init__(self) -> None:
        super().__init__()
        for at, node in enumerate(NODES):
            self.join(node, rack=f"/rack-{at % 2}")
        self.open_for_business()
        self.beating.clear()
        self.hop_s = dict.fromkeys(NODES, 0.01)
        self.disk_s = dict.fromkeys(NODES, 0.01)

    def samples(self, reporter: str) -> list[LatencySample]:
        """Return the latest measurements of a datanode."""
        at = NODES.index(reporter)
        others = [NODES[(at + step) % len(NODES)] for step in (1, 2, 3)]
        found = [LatencySample(other, self.found_s(reporter, other), 9) for other in others]
        return [*found, LatencySample(reporter, self.disk_s[reporter], 9)]

    def found_s(self, reporter: str, other: str) -> float:
        """Return the time that a datanode waits for another, in seconds per MiB."""
        del reporter  # unlike elsewhere, the waiting datanode does not matter here
        return self.hop_s[other]
