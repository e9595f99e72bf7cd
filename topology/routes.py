"""Finds all cheapest routes between two racks, as directed links.

In a tree there is exactly one. In a mesh, the network spreads flows over routes of equal cost. The route of a flow
depends on its ports and cannot be predicted.
"""

from __future__ import annotations

from heapq import heappop, heappush

from .model import Topology

#: A link in one direction: from the first switch or server to the second.
Hop = tuple[str, str]

#: Maximum number of routes between two racks; if there are more, those whose switches sort first.
_WAYS_MAX = 16


class Routes:
    """The cheapest routes between the switches of one topology, computed on demand and cached."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._before: dict[str, dict[str, list[str]]] = {}
        self._between: dict[Hop, list[tuple[Hop, ...]]] = {}

    def between_racks(self, source: str, target: str) -> list[tuple[Hop, ...]]:
        """Return the cheapest routes between two racks, at least one, each as its directed switch links. Within a
        rack there is one route without links.
        """
        known = self._between.get((source, target))
        if known is None:
            if source not in self._before:
                self._before[source] = self._cheapest_from(source)
            known = self._between[source, target] = self._ways(self._before[source], source, target)
        return known

    def _ways(self, before: dict[str, list[str]], source: str, target: str) -> list[tuple[Hop, ...]]:
        found: list[tuple[Hop, ...]] = []
        unfinished: list[tuple[str, tuple[Hop, ...]]] = [(target, ())]
        while unfinished and len(found) < _WAYS_MAX:
            at, rest = unfinished.pop()
            if at == source:
                found.append(rest)
            else:
                unfinished += ((last, ((last, at), *rest)) for last in sorted(before[at], reverse=True))
        return found

    def _cheapest_from(self, source: str) -> dict[str, list[str]]:
        """Return, for every switch, its predecessors on the cheapest routes from `source`."""
        least: dict[str, int] = {}
        before: dict[str, list[str]] = {}
        waiting: list[tuple[int, int, str, str]] = [(0, 0, "", source)]
        while waiting:
            cost, hops, previous, at = heappop(waiting)
            if at not in least:
                least[at] = cost
                before[at] = [previous]
                for link in self._topology.links_at[at]:
                    onward = link.other(at)
                    if onward not in self._topology.servers and onward not in least:
                        heappush(waiting, (cost + link.cost, hops + 1, at, onward))
            elif cost == least[at] and previous not in before[at]:
                before[at].append(previous)
        return before
