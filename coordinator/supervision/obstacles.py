"""Find what keeps agents from starting a query, to explain why it waits. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

from peacefs.coordinator.metadata.model import QueryRecord
from peacefs.protocol.messages import AgentBeat, AgentCommand

_NAMES_SHOWN_MAX = 3


class Obstacle(IntEnum):
    """A reason why an agent cannot start a query. Reasons with higher numbers are easier to remove."""

    ELSEWHERE = 1
    NO_SUCH_COMMAND = 2
    OTHER_USERS = 3
    NO_ARGUMENTS = 4
    LEAVING = 5
    FULL = 6


def obstacle(beat: AgentBeat, record: QueryRecord, runs: int) -> Obstacle | None:
    """Return what keeps an agent that has `runs` runs from starting the query; None if nothing does."""
    if record.nodes and beat.agent not in record.nodes and beat.host not in record.nodes:
        return Obstacle.ELSEWHERE
    command = next((each for each in beat.commands if each.name == record.command[0]), None)
    if command is None:
        return Obstacle.NO_SUCH_COMMAND
    if not _is_for(command, record):
        return Obstacle.OTHER_USERS
    if len(record.command) > 1 and not command.extra_arguments:
        return Obstacle.NO_ARGUMENTS
    if beat.leaving:
        return Obstacle.LEAVING
    return Obstacle.FULL if runs >= beat.runs_max else None


def _is_for(command: AgentCommand, record: QueryRecord) -> bool:
    return record.is_superuser or record.user in command.users


def why_no_agent(record: QueryRecord, agents: Mapping[str, AgentBeat], obstacles: Mapping[str, Obstacle]) -> str:
    """Say in a clause why none of these agents starts the query. Each agent must have an obstacle."""
    if not agents:
        return "no agent is alive: start `peacefs agent`"
    nearest = max(obstacles.values())
    names = [name for name in sorted(agents) if obstacles[name] is nearest]
    who, command = _listed(names), f"`{record.command[0]}'"
    match nearest:
        case Obstacle.ELSEWHERE:
            return f"no agent is alive on {_listed(record.nodes)}; agents are {_listed(sorted(agents))}"
        case Obstacle.NO_SUCH_COMMAND:
            # A user is not told what agents start for others.
            offered = {each.name for name in names for each in agents[name].commands if _is_for(each, record)}
            return (
                f"no agent offers the command {command}; {who} may start {_listed(sorted(offered)) or 'nothing'}"
            )
        case Obstacle.OTHER_USERS:
            return f"no agent may start {command} for {record.user}; {who} may for others"
        case Obstacle.NO_ARGUMENTS:
            return f"no agent may start {command} with arguments of a query; {who} may without"
        case Obstacle.LEAVING:
            return f"{who} is being stopped, and no other agent may start {command}"
        case Obstacle.FULL:
            return f"every agent that may start {command} has as many runs as it may: {who}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN_MAX])
    more = len(names) - _NAMES_SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown
