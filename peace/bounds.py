"""What no policy can beat: lower bounds on the mean time from request and on the makespan.

Each looks at one thing alone and gives it the best of schedules: shortest remaining first on what each rack
must send out (or take in) over its links, the same on all disks pooled, and every set as if it were alone.

In no schedule are n sets done before a single server of the same total rate, serving the shortest remaining
first, has done n; nor before the n-th of the times that the sets would take alone. So the sorted completion
times of a schedule are bounded one by one by the greater of the two, and their mean by the mean of those.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from peacefs.topology.model import Topology
from peacefs.topology.rate_curve import PAPER_CLIENT, RateCurve

from .arrivals import Arrival


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least possible mean time from request, and the least possible time of the last completion."""

    mean_s: float
    makespan_s: float


@dataclass(frozen=True, slots=True)
class _Job:
    arrives_s: float
    work_s: float
    alone_s: float


def bounds(topology: Topology, arrivals: Sequence[Arrival], client: RateCurve = PAPER_CLIENT) -> Bounds:
    """For these sets on this network. Chunks are taken to be on two racks where there are two."""
    groups = [_on_disks(topology, arrivals, client), *_on_uplinks(topology, arrivals, client)]
    asked_s = sum(arrival.at_s for arrival in arrivals)
    mean_s = max(
        (sum(map(sum, [_least_completions(group) for group in choice])) - asked_s) / len(arrivals)
        for choice in _partitions(groups)
    )
    makespan_s = max(max(_least_completions(group), default=0.0) for group in groups)
    return Bounds(mean_s, makespan_s)
