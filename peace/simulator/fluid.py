"""Max-min fair rates: flows share resources like ideal TCP connections.

The rate of a flow can increase only if the rate of a flow that is no faster decreases. The rates are computed by
filling: all of them rise together until a resource is full. Then the rates of the flows that use it stay, and the
others rise further.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace

_ROUNDING = 1 + 1e-12


def max_min_rates(flows: Mapping[int, Sequence[int]], capacity: Callable[[int, int], float]) -> dict[int, float]:
    """Return the rate of each flow. `flows` are the resources that each flow uses.

    `capacity(resource, n)` is the total rate of a resource that n flows use.
    """
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
        # Shares only rise as flows get their final rate, so an outdated entry moves back in the heap.
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
