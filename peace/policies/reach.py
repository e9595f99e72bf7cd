"""Computes how the replicas of one chunk could be split between racks if the cluster were idle.

The result does not depend on the load, so it is computed again only when nodes are added or removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from .rack_load import NodeLoad, RackLoad

_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Reach:
    """The number of possible nodes in the writer's rack (`here`) and in other racks, without the writer's node.

    `racks_elsewhere` is the number of other racks with such nodes, `widest` the largest number in one of them.
    `replicas` is the possible number of replicas on distinct nodes. If `needs_writer`, one is on the writer's
    node.
    """

    here: int
    elsewhere: int
    racks_elsewhere: int
    widest: int
    replicas: int
    needs_writer: bool

    def splits(self, own: bool, more_here: bool) -> tuple[int, ...]:
        """Return the allowed numbers of replicas in the writer's rack, best first.

        With `own`, one of them is on the writer's node. The chunk is in two racks if the cluster has two.
        """
        return _splits(self, own, more_here)

    @property
    def one_rack_is_enough(self) -> bool:
        """True if all replicas outside the writer's rack fit into one rack."""
        return self.replicas <= self.here + self.needs_writer + self.widest


@lru_cache(maxsize=1024)
def _splits(reach: Reach, own: bool, more_here: bool) -> tuple[int, ...]:
    replicas, stay_max = reach.replicas, reach.here + own
    if replicas == 1:
        return tuple(here for here in (1, 0) if own <= here <= stay_max and (here or reach.elsewhere))
    stay_min = max(own, 1 if stay_max else 0, replicas - reach.elsewhere)
    if reach.one_rack_is_enough:
        stay_min = max(stay_min, min(replicas - reach.widest, stay_max))
    leave_min = 1 if reach.elsewhere else 0
    possible = range(stay_min, min(stay_max, replicas - leave_min) + 1)
    return tuple(sorted(possible, key=lambda here: (abs(2 * here - replicas), -here if more_here else here)))


class Reaches:
    """Computes and caches the reach of each kind of request.

    `recruit` gives slow nodes a slot if the cluster needs them, and returns whether there were any.
    """

    def __init__(self, racks: list[RackLoad], nodes: Mapping[str, NodeLoad], recruit: Callable[[], bool]) -> None:
        self._racks = racks
        self._nodes = nodes
        self._recruit = recruit
        self._known: dict[tuple[NodeLoad | None, int, int, frozenset[str]], Reach] = {}

    def of(self, at_writer: NodeLoad | None, home: RackLoad, replicas: int, exclude: frozenset[str]) -> Reach:
        """Return the reach for a writer on `at_writer`, or outside the cluster with a chain from `home`."""
        key = (at_writer, home.index, replicas, exclude)
        reach = self._known.get(key)
        if reach is None:
            reach = self._work_out(at_writer, home, replicas, exclude)
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[key] = reach
        return reach

    def forget(self) -> None:
        """Clear the cache, after the set of nodes with slots has changed."""
        self._known.clear()

    def _work_out(
        self, at_writer: NodeLoad | None, home: RackLoad, replicas: int, exclude: frozenset[str]
    ) -> Reach:
        usable = {rack.index: len(rack.nodes) for rack in self._racks}
        for name in exclude | {at_writer.name} if at_writer is not None else exclude:
            node = self._nodes.get(name)
            if node is not None and node.slots:
                usable[node.rack.index] -= 1
        if sum(usable.values()) < replicas and self._recruit():
            return self._work_out(at_writer, home, replicas, exclude)
        here = usable.pop(home.index)
        elsewhere = sum(usable.values())
        writer_may = at_writer is not None and at_writer.name not in exclude
        needs_writer = writer_may and here + elsewhere < replicas
        return Reach(
            here,
            elsewhere,
            racks_elsewhere=sum(count > 0 for count in usable.values()),
            widest=max(usable.values(), default=0),
            replicas=min(replicas, here + elsewhere + needs_writer),
            needs_writer=needs_writer,
        )
