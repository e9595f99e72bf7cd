"""Choose the node that runs a query: the one that holds most of its checkpoint, or one in the same rack. Pure.

This follows the papers' recovery by a coordinator, with replicas of the state in place of a hot standby. The node
that reads least over the network recovers soonest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Holdings:
    """Where a checkpoint is: its bytes on each host, and in each rack, where replicas of a chunk count once."""

    by_host: Mapping[str, int] = field(default_factory=dict)
    by_rack: Mapping[str, int] = field(default_factory=dict)
    #: The racks of hosts with datanodes. An agent on such a host is in the same rack.
    rack_of: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentCandidate:
    """An agent that may start the query and has room for it. `rack` is empty if the agent does not state it."""

    name: str
    host: str
    rack: str
    runs: int


def choose(candidates: Iterable[AgentCandidate], holdings: Holdings, failed_on: str | None) -> str | None:
    """Return the name of the best agent; None without candidates.

    The agent on which the query failed last comes last. Otherwise the agent with most of the checkpoint on its
    host is best, then the one with most in its rack, then the one with the fewest runs.
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
