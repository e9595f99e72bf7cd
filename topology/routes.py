"""Find the links that data crosses between two racks, and their direction: all of the cheapest ways.

In a tree there is one. In a mesh a network spreads flows over those that cost the same; which one a flow will
take depends on its ports, and nobody knows beforehand.
"""

from __future__ import annotations

from heapq import heappop, heappush

from .model import Topology

#: A link in one direction: from the first switch or server to the second.
Hop = tuple[str, str]

#: Equally cheap ways that are told apart; where there are more, those whose switches come first by name.
_WAYS_MAX = 16


class Routes:
    """The cheapest ways between the switches of one topology, worked out as they are asked for."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._before: dict[str, dict[str, list[str]]] = {}
        self._between: dict[Hop, list[tuple[Hop, ...]]] = {}

    def between_racks(self, source: str, target: str) -> list[tuple[Hop, ...]]:
        """The cheapest ways from one rack to another, at least one, each as its directed switch links; within
        a rack, one way without links."""
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
        """For every switch, those before it on the cheapest ways from `source`."""
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
