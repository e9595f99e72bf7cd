"""Plan a balancing run: compare how full datanodes are, choose moves that even them out, and find the end. Pure.

The same plan serves the disks of one datanode, which are then named by their directories.

As HDFS's balancer has it: a datanode is over-used when its share in use exceeds the mean of all by more than a
threshold, under-used when it falls short of it by more. A move takes from one above the mean, gives to one below,
at least one of the two is outside the threshold, and neither crosses the mean: so every move is needed, together
they are no more than what lies above the mean, and they come to an end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from peacefs.protocol.ids import NodeId


class BalancePhase(Enum):
    """The phase of a balancing run, or how it ended."""

    RUNNING = "running"
    BALANCED = "balanced"
    #: Somebody is outside the threshold, but nothing may be moved.
    STUCK = "stuck"
    #: One move failed after the other.
    FAILING = "failing"
    CANCELLED = "cancelled"
    #: Nobody asked for it any more.
    ABANDONED = "abandoned"


class Fill(NamedTuple):
    """The bytes that a datanode's replicas need, out of those that it could hold."""

    used_bytes: int
    capacity_bytes: int


class BalancePlan:
    """Begins with what the datanodes say; after that only its own moves change it."""

    def __init__(self, fills: Mapping[NodeId, Fill], threshold: float) -> None:
        """`threshold` is a share, such as 0.1. Datanodes without any capacity take no part."""
        self._used = {node: fill.used_bytes for node, fill in fills.items() if fill.capacity_bytes > 0}
        self._capacity = {node: fills[node].capacity_bytes for node in self._used}
        self._threshold = threshold
        capacity = sum(self._capacity.values())
        self._mean = sum(self._used.values()) / capacity if capacity else 0.0

    def has(self, *nodes: NodeId) -> bool:
        """Return whether all of them take part."""
        return all(node in self._used for node in nodes)

    def excess_bytes(self, node: NodeId) -> float:
        """By how much a datanode is above the mean; negative below it."""
        return self._used[node] - self._mean * self._capacity[node]

    def _beyond_bytes(self, node: NodeId) -> float:
        """By how much it is outside the threshold; negative when it is not."""
        return abs(self.excess_bytes(node)) - self._threshold * self._capacity[node]

    def over(self) -> list[NodeId]:
        """Outside the threshold, and above it."""
        return [node for node in self._used if self._beyond_bytes(node) > 0 and self.excess_bytes(node) > 0]

    def under(self) -> list[NodeId]:
        return [node for node in self._used if self._beyond_bytes(node) > 0 and self.excess_bytes(node) < 0]

    def sources(self) -> list[NodeId]:
        """The datanodes that may give, the fullest first."""
        above = self._used if self.under() else self.over()
        return sorted((node for node in above if self.excess_bytes(node) > 0), key=self._share, reverse=True)

    def targets(self, source: NodeId, size: int) -> list[NodeId]:
        """The datanodes that may receive `size` bytes from `source`, the emptiest first."""
        if self.excess_bytes(source) < size:
            return []
        below = self._used if self._beyond_bytes(source) > 0 else self.under()
        return sorted((node for node in below if -self.excess_bytes(node) >= size), key=self._share)

    def move(self, source: NodeId, target: NodeId, size: int) -> None:
        """Count a move; the move back undoes it."""
        self._used[source] -= size
        self._used[target] += size

    def left_bytes(self) -> int:
        """The bytes that must at least be moved until no datanode is outside the threshold."""
        over, under = (sum(self._beyond_bytes(node) for node in nodes) for nodes in (self.over(), self.under()))
        return round(max(over, under))

    def _share(self, node: NodeId) -> tuple[float, NodeId]:
        return self._used[node] / self._capacity[node], node


def keeps_spread(before: Sequence[str], after: Sequence[str], share: int) -> bool:
    """Return whether replicas in the racks `after` are spread as well as in `before`.

    No rack fewer, and none with more than before unless that is within its `share`.
    """
    most_before, most_after = (max(map(racks.count, racks), default=0) for racks in (before, after))
    return len(set(after)) >= len(set(before)) and most_after <= max(most_before, share)
