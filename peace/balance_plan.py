"""Plans a balancing run: compares how full datanodes are and chooses moves that balance them. Pure.

The same code balances the disks of one datanode; the names are then directories.

As in HDFS's balancer, a datanode is over-used if its used share is above the mean by more than a threshold, and
under-used if it is below the mean by more. A move goes from a datanode above the mean to one below. At least one
of them is outside the threshold, and neither crosses the mean. Therefore no move is ever undone, the moves add up
to at most the bytes above the mean, and the run ends.
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
    #: A datanode is outside the threshold, but no move is allowed.
    STUCK = "stuck"
    #: Too many consecutive moves failed.
    FAILING = "failing"
    CANCELLED = "cancelled"
    #: The client stopped renewing the run.
    ABANDONED = "abandoned"


class Fill(NamedTuple):
    """The bytes used by a datanode's replicas, and the bytes that it could hold."""

    used_bytes: int
    capacity_bytes: int


class BalancePlan:
    """The fill of all datanodes during one run.

    It starts with the datanodes' reports, and then only `move` changes it.
    """

    def __init__(self, fills: Mapping[NodeId, Fill], threshold: float) -> None:
        """`threshold` is a share, such as 0.1. Datanodes without capacity are ignored."""
        self._used = {node: fill.used_bytes for node, fill in fills.items() if fill.capacity_bytes > 0}
        self._capacity = {node: fills[node].capacity_bytes for node in self._used}
        self._threshold = threshold
        capacity = sum(self._capacity.values())
        self._mean = sum(self._used.values()) / capacity if capacity else 0.0

    def has(self, *nodes: NodeId) -> bool:
        return all(node in self._used for node in nodes)

    def excess_bytes(self, node: NodeId) -> float:
        """Return by how many bytes a datanode is above the mean; negative if it is below."""
        return self._used[node] - self._mean * self._capacity[node]

    def _beyond_bytes(self, node: NodeId) -> float:
        """Return by how many bytes a datanode is outside the threshold; negative if it is within."""
        return abs(self.excess_bytes(node)) - self._threshold * self._capacity[node]

    def over(self) -> list[NodeId]:
        return [node for node in self._used if self._beyond_bytes(node) > 0 and self.excess_bytes(node) > 0]

    def under(self) -> list[NodeId]:
        return [node for node in self._used if self._beyond_bytes(node) > 0 and self.excess_bytes(node) < 0]

    def sources(self) -> list[NodeId]:
        """Return the datanodes from which replicas may be moved, the fullest first."""
        above = self._used if self.under() else self.over()
        return sorted((node for node in above if self.excess_bytes(node) > 0), key=self._share, reverse=True)

    def targets(self, source: NodeId, size: int) -> list[NodeId]:
        """Return the datanodes that may receive `size` bytes from `source`, the emptiest first."""
        if self.excess_bytes(source) < size:
            return []
        below = self._used if self._beyond_bytes(source) > 0 else self.under()
        return sorted((node for node in below if -self.excess_bytes(node) >= size), key=self._share)

    def move(self, source: NodeId, target: NodeId, size: int) -> None:
        """Record a move. If the move fails later, undo it by recording the reverse move."""
        self._used[source] -= size
        self._used[target] += size

    def left_bytes(self) -> int:
        """Return the minimum number of bytes to move until every datanode is within the threshold."""
        over, under = (sum(self._beyond_bytes(node) for node in nodes) for nodes in (self.over(), self.under()))
        return round(max(over, under))

    def _share(self, node: NodeId) -> tuple[float, NodeId]:
        return self._used[node] / self._capacity[node], node


def keeps_spread(before: Sequence[str], after: Sequence[str], share: int) -> bool:
    """Return whether replicas in the racks `after` are spread at least as well as in `before`.

    That means at least as many racks, and no rack with more replicas than its `share` or, if higher, the previous
    maximum.
    """
    most_before, most_after = (max(map(racks.count, racks), default=0) for racks in (before, after))
    return len(set(after)) >= len(set(before)) and most_after <= max(most_before, share)
