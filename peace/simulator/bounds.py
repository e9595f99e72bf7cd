"""Lower bounds for every policy, on the mean time from request to done and on the makespan.

Each bound assumes an optimal schedule with only one bottleneck: the links out of a rack, all disks as one pool, or
each set alone in the cluster.

No schedule completes n sets earlier than a single server of the same total rate that always serves the set with
the least remaining work (Schrage 1968). And no schedule completes them before the n-th smallest of the times at
which the sets, each alone in the cluster, would be done. So the n-th completion time is at least the larger of
both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from peacefs.peace.policies.ledger import WriteSet
from peacefs.topology.model import Topology
from peacefs.topology.rate_curve import PAPER_CLIENT, RateCurve

from .simulate import Arrival


@dataclass(frozen=True, slots=True)
class WaitingBounds:
    """Lower bounds on the mean time from request to done, and on the last completion, in seconds."""

    mean_s: float
    makespan_s: float


@dataclass(frozen=True, slots=True)
class _Job:
    """A set as seen by one resource: its seconds of work there, and its duration if alone in the cluster."""

    arrives_s: float
    work_s: float
    alone_s: float


def bounds(topology: Topology, arrivals: Sequence[Arrival], client: RateCurve = PAPER_CLIENT) -> WaitingBounds:
    """Return the bounds for these sets, if every chunk must be on two racks unless there is only one."""
    on_disks = _jobs_on_disks(topology, arrivals, client)
    out_of_racks = _jobs_out_of_racks(topology, arrivals, client)
    asked_s = sum(arrival.at_s for arrival in arrivals)
    views = [[_least_completions(on_disks)], [_least_completions(jobs) for jobs in out_of_racks]]
    done_s = max(sum(sum(completions) for completions in view) for view in views)
    last_s = max(max(completions, default=0.0) for view in views for completions in view)
    return WaitingBounds((done_s - asked_s) / len(arrivals), last_s)


def _jobs_on_disks(topology: Topology, arrivals: Sequence[Arrival], client: RateCurve) -> list[_Job]:
    rate = sum(
        min(server.disk.best_rate, topology.network_bytes_s(server.name)) for server in topology.servers.values()
    )
    return [
        _Job(
            arrival.at_s,
            arrival.write_set.replication * sum(arrival.write_set.chunks) / rate,
            alone_s(topology, arrival.write_set, client),
        )
        for arrival in arrivals
    ]


def _jobs_out_of_racks(topology: Topology, arrivals: Sequence[Arrival], client: RateCurve) -> Iterable[list[_Job]]:
    """Yield, for each rack, the sets of its writers as jobs for the links out of the rack."""
    if len(topology.racks) < 2:
        return
    for rack in topology.racks:
        rate = sum(link.bytes_s for link in topology.switch_links() if rack in link.ends)
        yield [
            _Job(
                arrival.at_s,
                sum(arrival.write_set.chunks) / rate if arrival.write_set.replication > 1 else 0.0,
                alone_s(topology, arrival.write_set, client),
            )
            for arrival in arrivals
            if (writer := arrival.write_set.writer) is not None and topology.servers[writer].rack == rack
        ]


def alone_s(topology: Topology, write_set: WriteSet, client: RateCurve) -> float:
    """Return the minimum time of the set in a cluster without other load."""
    stream = min(client.rate(1), max(server.disk.rate(1) for server in topology.servers.values()))
    together = min(client.best_rate, len(write_set.chunks) * stream)
    if write_set.writer is not None:
        together = min(together, topology.network_bytes_s(write_set.writer))
    return max(max(write_set.chunks) / stream, sum(write_set.chunks) / together)


def _least_completions(jobs: Sequence[_Job]) -> list[float]:
    alone = sorted(job.arrives_s + job.alone_s for job in jobs)
    return [max(times) for times in zip(sorted(_shortest_remaining_first(jobs)), alone, strict=True)]


def _shortest_remaining_first(jobs: Sequence[_Job]) -> list[float]:
    """Return the completion times on one server that always serves the job with the least remaining work."""
    coming = sorted(jobs, key=lambda job: job.arrives_s, reverse=True)
    left: list[float] = []
    done: list[float] = []
    now_s = 0.0
    while coming or left:
        if not left:
            now_s = max(now_s, coming[-1].arrives_s)
        while coming and coming[-1].arrives_s <= now_s:
            heappush(left, coming.pop().work_s)
        shortest = heappop(left)
        until_s = coming[-1].arrives_s if coming else float("inf")
        if now_s + shortest <= until_s:
            now_s += shortest
            done.append(now_s)
        else:
            heappush(left, shortest - (until_s - now_s))
            now_s = until_s
    return done
