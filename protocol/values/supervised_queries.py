"""Supervised queries as they are told over REST: in what phase they are, on which agents they may be."""

from __future__ import annotations

from enum import Enum

import msgspec


class QueryPhase(Enum):
    """The phases in a supervised query's life."""

    #: For an agent that may start it, or for the end of a pause between two starts.
    WAITING = "waiting"
    #: A run is being begun.
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    #: By itself, with exit status 0.
    ENDED = "ended"
    STOPPED = "stopped"
    #: Too often, or in a way that another start does not mend.
    FAILED = "failed"


#: Those that a query does not leave by itself.
OVER = (QueryPhase.ENDED, QueryPhase.STOPPED, QueryPhase.FAILED)


class QueryStatus(msgspec.Struct, frozen=True):
    """A supervised query. `run` is that of the last start, as people read it; `reason` why it is as it is, and
    for one that waits, which agent it waits for.

    `standby` says how its second driver is, if it is to have one: "none yet" and why, "starting", "ready", or why
    the last one failed; `standby_agent` where it is.
    """

    name: str
    user: str
    command: list[str]
    checkpoint: str
    nodes: list[str]
    #: A value of Phase.
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
    """An agent that was heard lately: what it may start, how many at once, how many queries it has."""

    name: str
    host: str
    rack: str
    commands: list[str]
    runs_max: int
    runs: int
    heard_s_ago: float


class RunLog(msgspec.Struct, frozen=True):
    """The end of the log of a query's last run, as its agent has it."""

    query: str
    run: str
    agent: str
    text: str


class Supervised(msgspec.Struct, frozen=True):
    """All queries that are known, and all agents that are alive."""

    queries: list[QueryStatus]
    agents: list[AgentStatus]
