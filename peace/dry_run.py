"""Dry runs: where a policy would place each chunk of some requests in an idle cluster, and when.

A dry run reserves nothing and ignores the current load of the cluster. Times are from a simplified version of the
model in `simulate`: the chunks of a step start together and keep their initial rates; the next step begins when
the last of them is done.

`plan_rounds` runs a policy on write sets round by round, without a clock. All chunks of a round are granted
together, and all of them end before the next round begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import msgspec

from peacefs.protocol.errors import BadRequest
from peacefs.protocol.limits import chunk_bytes_max, pipeline_hops_max, plan_chunks_max, plan_requests_max
from peacefs.topology.model import Topology
from peacefs.topology.rate_curve import PAPER_CLIENT
from peacefs.topology.toml_file import parse_structure, parse_toml

from .policies.interface import Event, Finished, Policy, Submitted
from .policies.ledger import Grant, WriteSet
from .simulator.comparison import POLICIES
from .simulator.fluid import max_min_rates
from .simulator.fluid_network import FluidNetwork

plan_servers_max: Final = 2000
# Routes are computed between every two racks.
plan_switches_max: Final = 250


#: Maximum number of servers that an error message lists.
_NAMED = 5
_NO_ROOM = "the policy finds no room for it, even in an idle cluster"


class DryRunRequest(msgspec.Struct, frozen=True):
    """The paper's triple (w, r, k). `writer` is a server, or None for a writer outside the cluster."""

    writer: str | None
    replication: int
    chunks: int


class Task(msgspec.Struct, frozen=True):
    """The input of a dry run. `topology` is TOML text, or its tables as a structure.

    Servers in `exclude` may write but get no replicas.
    """

    policy: str
    seed: int
    requests: list[DryRunRequest]
    topology: str | dict[str, Any] = ""
    exclude: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Assignment:
    """The pipeline and the time of one chunk of one request.

    Chunks and requests are counted from 0. Times are seconds from the start of the plan.
    """

    request: int
    chunk: int
    pipeline: list[str]
    step: int
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Unplaced:
    """A chunk that could not be placed, and why."""

    request: int
    chunk: int
    reason: str


@dataclass(frozen=True)
class DryRunPlan:
    """The plan. It contains each chunk once, as an assignment (in order of steps) or as unplaced."""

    assignments: list[Assignment]
    unplaced: list[Unplaced]


def dry_run(task: Task) -> DryRunPlan:
    """Make a plan. The same task always gives the same plan.

    Raises BadRequest if the task is invalid or beyond the limits, InvalidTopology, and Unsupported if the policy's
    solver is not installed.
    """
    return plan_on(_topology(task), task)


def plan_on(topology: Topology, task: Task) -> DryRunPlan:
    """Make a plan for a parsed topology, ignoring `task.topology`. Raises BadRequest and Unsupported."""
    if task.policy not in POLICIES:
        raise BadRequest(f"there is no policy {task.policy!r}; there are {', '.join(POLICIES)}")
    _check_size(task.requests)
    _check_topology(topology)
    for number, request in enumerate(task.requests):
        _check_request(number, request, topology, len(topology.servers.keys() - task.exclude))
    policy = POLICIES[task.policy](topology, Random(task.seed))
    write_sets = [
        WriteSet(
            str(number), request.writer, request.replication, (chunk_bytes_max,) * request.chunks, task.exclude
        )
        for number, request in enumerate(task.requests)
    ]
    rounds = plan_rounds(policy, write_sets)
    unplaced = [Unplaced(int(name), chunk, _NO_ROOM) for name, chunk in policy.waiting()]
    return DryRunPlan(_assignments(topology, rounds), unplaced)


def _check_size(requests: list[DryRunRequest]) -> None:
    if not requests:
        raise BadRequest("there are no requests to plan")
    if len(requests) > plan_requests_max:
        raise BadRequest(f"{len(requests)} requests are over the limit of {plan_requests_max}")
    chunks = sum(max(0, request.chunks) for request in requests)
    if chunks > plan_chunks_max:
        raise BadRequest(f"{chunks} chunks are over the limit of {plan_chunks_max} for one plan")


def _topology(task: Task) -> Topology:
    match task.topology:
        case str(text):
            return parse_toml(text)
        case structure:
            return parse_structure(structure)


def _check_topology(topology: Topology) -> None:
    if not topology.servers:
        raise BadRequest("there are no servers to plan for")
    if len(topology.servers) > plan_servers_max:
        raise BadRequest(f"{len(topology.servers)} servers are over the limit of {plan_servers_max} for a plan")
    if len(topology.switches) > plan_switches_max:
        raise BadRequest(f"{len(topology.switches)} switches are over the limit of {plan_switches_max} for a plan")


def _check_request(number: int, request: DryRunRequest, topology: Topology, receivers: int) -> None:
    if request.chunks < 1:
        raise BadRequest(f"request {number}: {request.chunks} chunks are nothing to plan; at least 1 is wanted")
    if not 1 <= request.replication <= pipeline_hops_max:
        raise BadRequest(
            f"request {number}: replication {request.replication} is not from 1 to {pipeline_hops_max}"
        )
    if request.replication > receivers:
        raise BadRequest(
            f"request {number}: {request.replication} replicas need as many servers; "
            f"there {'is' if receivers == 1 else 'are'} {receivers}"
        )
    if request.writer is not None and request.writer not in topology.servers:
        known = ", ".join(sorted(topology.servers)[:_NAMED]) + (", ..." if len(topology.servers) > _NAMED else "")
        raise BadRequest(
            f"request {number}: there is no server {request.writer!r} for its writer; there are {known}; "
            "a writer outside the cluster has no name"
        )


def _assignments(topology: Topology, rounds: list[list[Grant]]) -> list[Assignment]:
    network = FluidNetwork(topology, PAPER_CLIENT)
    assignments: list[Assignment] = []
    start_s = 0.0
    for step, grants in enumerate(rounds):
        rates = max_min_rates({grant.number: network.resources(grant) for grant in grants}, network.capacity)
        ends_s = [start_s + grant.chunk_bytes / rates[grant.number] for grant in grants]
        assignments += (
            Assignment(int(grant.write_set), grant.chunk, list(grant.chain), step, start_s, end_s)
            for grant, end_s in zip(grants, ends_s, strict=True)
        )
        start_s = max(ends_s)
    return assignments


def plan_rounds(policy: Policy, write_sets: Iterable[WriteSet], round_s: float = 1.0) -> list[list[Grant]]:
    """Return the grants of each round, until nothing more can be granted.

    Afterwards, `policy.chunks_waiting` is the number of chunks that cannot be placed. The policy must be new,
    because earlier grants would never end.
    """
    rounds: list[list[Grant]] = []
    news: list[Event] = [Submitted(write_set) for write_set in write_sets]
    while grants := policy.handle(news, len(rounds) * round_s):
        rounds.append(grants)
        news = [Finished(grant.number) for grant in grants]
    return rounds
