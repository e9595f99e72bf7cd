"""Which links data crosses between two racks, in which direction.

Where there is more than one cheapest way, the one whose switches come first by name is taken: a network
balances flows by their ports, which nobody can know beforehand.
"""

from __future__ import annotations

from heapq import heappop, heappush

from .model import Topology

#: A link in one direction: from the first switch or server to the second.
Hop = tuple[str, str]


class Routes:
    """The cheapest ways between the switches of one topology, worked out as they are asked for."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._parents: dict[str, dict[str, str]] = {}
        self._between: dict[Hop, tuple[Hop, ...]] = {}

    def between_racks(self, source: str, target: str) -> tuple[Hop, ...]:
        """The directed switch links from one rack to another; empty within a rack."""
        known = self._between.get((source, target))
        if known is None:
            known = self._between[source, target] = self._walk(source, target)
        return known

    def _walk(self, source: str, target: str) -> tuple[Hop, ...]:
        towards = self._parents.get(source)
        if towards is None:
            towards = self._parents[source] = self._cheapest_from(source)
        way: list[Hop] = []
        at = target
        while at != source:
            way.append((towards[at], at))
            at = towards[at]
        return tuple(reversed(way))

    def _cheapest_from(self, source: str) -> dict[str, str]:
        """For every switch, the one before it on the cheapest way from `source`."""
        before: dict[str, str] = {}
        waiting: list[tuple[int, str, str]] = [(0, "", source)]
        while waiting:
            cost, previous, at = heappop(waiting)
            if at in before:
                continue
            before[at] = previous
            for link in self._topology.links_at[at]:
                onward = link.other(at)
                if onward not in self._topology.servers and onward not in before:
                    heappush(waiting, (cost + link.cost, at, onward))
        return before
