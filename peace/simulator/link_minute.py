"""The load of one link during one minute of a periodic load, second by second, for figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from peacefs.peace.policies.ledger import Grant

from .periodic import GRACE_S, HORIZON_S, PERIODIC_CASES, load_of, periodic_simulation, run_periodic

_FROM_S = 60
_SECONDS = 60


@dataclass(frozen=True, slots=True)
class LinkMinute:
    """The mean rate of a link in each second, and the 99th percentile of the stretch in the run."""

    link: str
    capacity_bytes_s: float
    bytes_s: list[float]
    p99: float


def link_minute(case_name: str, policy: str, seed: int = 0) -> LinkMinute:
    """Return the load of the first rack's uplink, starting with the second minute of a case."""
    case = PERIODIC_CASES[case_name]
    _, arrivals = load_of(case, seed)
    run = periodic_simulation(case, policy, seed, arrivals)
    topology = run.topology
    rack = min(topology.racks)
    seconds = [0.0] * _SECONDS

    def watch(now_s: float, elapsed_s: float, grants: Mapping[int, Grant], rates: Mapping[int, float]) -> None:
        rate = sum(
            rates[number]
            for number, grant in grants.items()
            if grant.writer is not None
            and topology.servers[grant.writer].rack == rack
            and any(topology.servers[node].rack != rack for node in grant.chain)
        )
        end_s = now_s + elapsed_s
        while rate and now_s < end_s:
            second = int(now_s)
            until_s = min(end_s, second + 1.0)
            if _FROM_S <= second < _FROM_S + _SECONDS:
                seconds[second - _FROM_S] += rate * (until_s - now_s)
            now_s = until_s

    run.watch = watch
    run.run_until(HORIZON_S + GRACE_S)
    capacity = sum(link.bytes_s for link in topology.switch_links() if rack in link.ends)
    (row,) = run_periodic([case_name], [policy], [seed])
    return LinkMinute(f"uplink of {rack}", capacity, seconds, row.p99)
