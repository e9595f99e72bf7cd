"""Peace as published: the writing of chunks proceeds in timesteps, planned by Algorithm 1.

A timestep begins with the whole capacity of the network. What cannot be placed is told "not now" (no grant)
and is asked for again, oldest first, when four fifths of the step's chunks are written. A set that is
submitted in the middle of a step gets what is residual.

Waiting is bounded: the oldest set gets at least one chunk in each step, since the step begins with an empty
graph; so a set waits for no more steps than there are chunks ahead of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from peacefs.topology.graph import Graph, Streams
from peacefs.topology.model import Topology

from .ledger import Grant
from .paper import THREE_REPLICAS, Request, Template, schedule_timestep
from .policy import Policy

_SOME_WRITER = "writer"


class PaperPolicy(Policy):
    """Algorithm 1, step by step. `streams` are the capacities (2 for sending and receiving in section 6.2)."""

    def __init__(
        self,
        topology: Topology,
        streams: Streams,
        rng: Random,
        *,
        templates: Sequence[Template] = THREE_REPLICAS,
        step_ends_at: float = 0.8,
    ) -> None:
        super().__init__()
        self._streams = streams
        self._rng = rng
        self._templates = templates
        self._step_ends_at = step_ends_at
        self._scheduled: set[int] = set()
        self._written = 0
        self._use(topology)

    def _use(self, topology: Topology) -> None:
        self._graph = Graph(topology, self._streams)
        self._residual = self._graph.capacities()

    def _release(self, grant: Grant) -> None:
        if grant.number in self._scheduled:
            self._written += 1

    def _admit(self, now_s: float) -> list[Grant]:
        if self._written >= self._step_ends_at * len(self._scheduled):
            self._residual = self._graph.capacities()
            self._scheduled.clear()
            self._written = 0
        waiting = [pending for pending in self._ledger.pending() if pending.waiting]
        requests = [
            Request(p.write_set.writer or "", p.write_set.replication, len(p.waiting), p.exclude) for p in waiting
        ]
        plan = schedule_timestep(requests, self._graph, self._residual, self._templates, self._rng)
        self._residual = plan.residual
        grants = [self._ledger.grant(waiting[index], nodes) for index, nodes in plan.paths]
        self._scheduled.update(grant.number for grant in grants)
        return grants
