"""Peace as published: chunks are written in timesteps, which Algorithm 1 plans.

A timestep begins with the full capacity of the network. Chunks that cannot be placed get no grant. They are tried
again, oldest first, in the next step, which begins when four fifths of this step's chunks are written. A set that
is submitted during a step gets the residual capacity.

Waiting is bounded. The oldest set gets at least one chunk in each step, because the step begins with an empty
graph. So a set waits for at most as many steps as there are chunks before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random

from peacefs.topology.calibration import calibrate
from peacefs.topology.graph import Graph, Streams
from peacefs.topology.model import Topology

from .algorithm1 import THREE_REPLICAS, PathPlan, PathRequest, Template, schedule_timestep
from .interface import Policy
from .ledger import Grant, PendingSet

Schedule = Callable[[Iterable[PathRequest], Graph, Sequence[int], Sequence[Template], Random], PathPlan]


_NO_LIMIT = 1 << 30


class PaperPolicy(Policy):
    """Runs Algorithm 1, or another `schedule` with its interface (`flow.FlowScheduler`), step by step.

    `streams` are the capacities (2 for sending and receiving in section 6.2); None derives them from each network.
    `servers_per_turn` limits the duration of `handle`: a call considers at most this many requests times servers,
    and must be repeated while `has_more`.
    """

    def __init__(
        self,
        topology: Topology,
        streams: Streams | None,
        rng: Random,
        *,
        templates: Sequence[Template] = THREE_REPLICAS,
        step_ends_at: float = 0.8,
        schedule: Schedule = schedule_timestep,
        servers_per_turn: int = _NO_LIMIT,
    ) -> None:
        super().__init__()
        self._streams = streams
        self._rng = rng
        self._templates = templates
        self._step_ends_at = step_ends_at
        self._schedule = schedule
        self._servers_per_turn = servers_per_turn
        self._has_more = False
        self._scheduled: set[int] = set()
        self._use(topology)

    def _use(self, topology: Topology) -> None:
        streams = self._streams or Streams(calibrate(topology).stream_bytes_s)
        self._graph = Graph(topology, streams)
        self._requests_per_turn = max(1, self._servers_per_turn // max(1, len(topology.servers)))
        self._begin_step()

    def _begin_step(self) -> None:
        self._residual = self._graph.capacities()
        self._scheduled.clear()
        self._written = 0
        self._told_not_now: set[PendingSet] = set()

    def _release(self, grant: Grant) -> None:
        if grant.number in self._scheduled:
            self._written += 1

    def _take_over(self, grant: Grant) -> None:
        """Count the grant as part of the current step. Its use of the network is not known to the graph."""
        self._scheduled.add(grant.number)

    @property
    def has_more(self) -> bool:
        return self._has_more

    def _admit(self, now_s: float) -> list[Grant]:
        if self._written >= self._step_ends_at * len(self._scheduled):
            self._begin_step()
        asking = [
            pending for pending in self._ledger.pending() if pending.waiting and pending not in self._told_not_now
        ]
        cut, asking = len(asking) > self._requests_per_turn, asking[: self._requests_per_turn]
        self._has_more = False
        requests = [self._request(pending) for pending in asking]
        both = list(zip(asking, requests, strict=True))
        self._told_not_now.update(pending for pending, request in both if not request.r)
        feasible = [(pending, request) for pending, request in both if request.r]
        if not feasible:
            return []
        plan = self._schedule(
            (request for _, request in feasible), self._graph, self._residual, self._templates, self._rng
        )
        self._residual = plan.residual
        grants = [self._ledger.grant(feasible[index][0], nodes) for index, nodes in plan.paths]
        self._scheduled.update(grant.number for grant in grants)
        # If nothing is in flight, no step would ever end, so `has_more` must stay False.
        self._has_more = cut and bool(self._scheduled)
        self._told_not_now.update(pending for pending, _ in feasible if pending.waiting)
        return grants

    def _request(self, pending: PendingSet) -> PathRequest:
        """Make a path request, with replicas limited to the number of possible nodes; r = 0 if there are none."""
        servers = self._graph.topology.servers
        write_set, exclude = pending.write_set, pending.exclude
        possible = len(servers) - len(exclude & servers.keys())
        replicas = min(write_set.replication, possible)
        writer, chunks = write_set.writer, len(pending.waiting)
        if writer is not None and writer in servers:
            on_writer = writer not in exclude and possible <= write_set.replication
            return PathRequest(writer, replicas, chunks, exclude, on_writer)
        enters_by = self._rng.choice(sorted(servers.keys() - exclude)) if possible else ""
        return PathRequest(enters_by, replicas, chunks, exclude, on_writer=True)
