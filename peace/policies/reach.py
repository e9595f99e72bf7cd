"""Find how the replicas of one chunk can be split between the racks of a cluster at rest.

Kept apart from load: whether there is room now is asked for every chunk, what could be there only when nodes
come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from .rack_load import NodeLoad, RackLoad

_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Reach:
    """Nodes in the writer's rack and elsewhere, the writer's own not counted; in how many racks those elsewhere
    are, and how many the rack with the most of them has. `replicas` is how many there can be, on distinct
    nodes; `needs_writer` says that the writer's own node is among them."""

    here: int
    elsewhere: int
    racks_elsewhere: int
    widest: int
    replicas: int
    needs_writer: bool

    def splits(self, own: bool, more_here: bool) -> tuple[int, ...]:
        """The numbers of replicas that may stay in the writer's rack, `own` (on its own node) among them: the
        best first. Two racks hold the chunk if the cluster has two."""
        return _splits(self, own, more_here)

    @property
    def one_rack_is_enough(self) -> bool:
        """Return whether all that leaves the writer's rack fits on one other."""
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
    """The reach of each kind of request, worked out once. `recruit` gives slow nodes a slot when a cluster
    cannot do without them, and says whether there were any."""

    def __init__(self, racks: list[RackLoad], nodes: Mapping[str, NodeLoad], recruit: Callable[[], bool]) -> None:
        self._racks = racks
        self._nodes = nodes
        self._recruit = recruit
        self._known: dict[tuple[NodeLoad | None, int, int, frozenset[str]], Reach] = {}

    def of(self, at_writer: NodeLoad | None, home: RackLoad, replicas: int, exclude: frozenset[str]) -> Reach:
        """For a writer on a node of ours (or none of ours, whose chain is to begin in rack `home`)."""
        key = (at_writer, home.index, replicas, exclude)
        reach = self._known.get(key)
        if reach is None:
            reach = self._work_out(at_writer, home, replicas, exclude)
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[key] = reach
        return reach

    def forget(self) -> None:
        """The nodes that have slots are others than before."""
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
