"""On which node a query goes on: where most of its checkpoint is, or at least in that rack. Pure.

The papers' recovery by the coordinator, with the state's replicas in the place of a hot standby: the node that
reads least over the network recovers soonest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Holdings:
    """The bytes of a checkpoint's replicas on each host, and the different ones in each rack."""

    by_host: Mapping[str, int] = field(default_factory=dict)
    by_rack: Mapping[str, int] = field(default_factory=dict)
    #: The racks of hosts that have datanodes: an agent beside one stands where that stands.
    rack_of: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentCandidate:
    """An agent that may start the query and has room for it. `rack` is empty if it does not say."""

    name: str
    host: str
    rack: str
    runs: int


def choose(candidates: Iterable[AgentCandidate], holdings: Holdings, failed_on: str | None) -> str | None:
    """The agent's name; None without candidates.

    Where the query failed last comes last; then who has most of the checkpoint on its own host, then in its rack,
    then who has least to do.
    """

    def order(candidate: AgentCandidate) -> tuple[bool, int, int, int, str]:
        rack = candidate.rack or holdings.rack_of.get(candidate.host, "")
        return (
            candidate.name == failed_on,
            -holdings.by_host.get(candidate.host, 0),
            -holdings.by_rack.get(rack, 0),
            candidate.runs,
            candidate.name,
        )

    best = min(candidates, key=order, default=None)
    return None if best is None else best.name
