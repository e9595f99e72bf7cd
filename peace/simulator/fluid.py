"""Max-min fair rates: how flows share what they pass through, as TCP would in an ideal world.

No flow can get more without another, that has no more than it, getting less. Found by filling: all rates rise
together until some resource is full; its flows are frozen, the others rise on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace

_ROUNDING = 1 + 1e-12


def max_min_rates(flows: Mapping[int, Sequence[int]], capacity: Callable[[int, int], float]) -> dict[int, float]:
    """The rate of each flow. `flows` are the resources that each passes through; `capacity(resource, n)` is
    what a resource carries in all when n flows pass through it."""
    users: dict[int, list[int]] = {}
    for flow, resources in flows.items():
        for resource in resources:
            users.setdefault(resource, []).append(flow)
    count = {resource: len(there) for resource, there in users.items()}
    room = {resource: capacity(resource, n) for resource, n in count.items()}
    fullest = [(room[resource] / n, resource) for resource, n in count.items()]
    heapify(fullest)
    rates: dict[int, float] = {}
    while len(rates) < len(flows):
        share, resource = fullest[0]
        n = count[resource]
        if n == 0:
            heappop(fullest)
            continue
        # Shares only rise while others freeze: an entry that is out of date goes back to its new place.
        current = room[resource] / n
        if current > share * _ROUNDING:
            heapreplace(fullest, (current, resource))
            continue
        for flow in users[resource]:
            if flow not in rates:
                rates[flow] = share
                for shared in flows[flow]:
                    count[shared] -= 1
                    room[shared] -= share
    return rates
