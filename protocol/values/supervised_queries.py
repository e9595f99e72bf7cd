"""The status of supervised queries and agents, as answered over REST."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

#: The command of agents' lists that starts the programs of dataflows.
DATAFLOW: Final = "dataflow"


class QueryPhase(Enum):
    """The phase of a supervised query."""

    #: Waiting for an agent that may start it, or for the end of the pause between two starts.
    WAITING = "waiting"
    #: A run is being started.
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    #: Ended by itself, with exit status 0.
    ENDED = "ended"
    STOPPED = "stopped"
    #: Failed too often, or with a failure that a restart cannot fix.
    FAILED = "failed"


#: The final phases, which a query leaves only on request.
OVER = (QueryPhase.ENDED, QueryPhase.STOPPED, QueryPhase.FAILED)


class QueryStatus(msgspec.Struct, frozen=True):
    """A supervised query. `run` is the run of its last start, as shown to people. `reason` explains its phase;
    while it waits, it says for which agent.

    `standby` is the state of its second driver, if it should have one: "none yet" with the reason, "starting",
    "ready", or why the last one failed. `standby_agent` is the agent that runs it.
    """

    name: str
    user: str
    command: list[str]
    checkpoint: str
    nodes: list[str]
    #: A value of QueryPhase.
    phase: str
    agent: str
    run: str
    location: str
    restarts: int
    restarts_max: int
    reason: str
    changed_ms: int
    standby: str = ""
    standby_agent: str = ""


class AgentStatus(msgspec.Struct, frozen=True):
    """A live agent: the commands that it may start, its maximum and its current number of runs."""

    name: str
    host: str
    rack: str
    commands: list[str]
    runs_max: int
    runs: int
    heard_s_ago: float


class RunLog(msgspec.Struct, frozen=True):
    """The end of the log of a query's last run, from its agent."""

    query: str
    run: str
    agent: str
    text: str


class Supervised(msgspec.Struct, frozen=True):
    """All known queries and all live agents."""

    queries: list[QueryStatus]
    agents: list[AgentStatus]
