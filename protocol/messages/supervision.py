"""Supervised queries: what an agent runs, and what it is to run. See decision 17."""

from __future__ import annotations

import msgspec

from .base import Message

#: The protocol version since which agents send the ends of logs.
LOGS_SINCE = 6


class AgentCommand(msgspec.Struct, frozen=True):
    """A command that an agent may start: for whom besides superusers, and whether with arguments of theirs."""

    name: str
    users: list[str]
    extra_arguments: bool


class RunReport(msgspec.Struct, frozen=True):
    """A run that an agent has started. `status` is its exit status once it has ended; None if it never began.

    A standby that `is_ready` waits for the run that it is to take over.
    """

    query: str
    run: str
    ended: bool = False
    status: int | None = None
    last_words: str = ""
    is_ready: bool = False


class WantedLog(msgspec.Struct, frozen=True):
    """A run whose log somebody wants to see."""

    query: str
    run: str


class RunLogTail(msgspec.Struct, frozen=True):
    """The end of a run's log."""

    query: str
    run: str
    text: str


class AgentBeat(Message, frozen=True):
    """An agent says who it is and everything that it runs. `process` is drawn at its start.

    With `leaving` it is its last word: it runs nothing any more and will start nothing. `logs` are those that the
    orders before this asked for.
    """

    agent: str
    process: str
    host: str
    rack: str
    commands: list[AgentCommand]
    runs_max: int
    runs: list[RunReport]
    leaving: bool = False
    logs: list[RunLogTail] = []


class RunOrder(msgspec.Struct, frozen=True):
    """A run of a query that is to be: `command` of the agent's list, and the checkpoint's path for this run.

    `token` shows the cluster who the run's user is, where it asks; another takes its place long before it ends.
    A `standby` has a number but no run of the checkpoint, which a driver of that number may write to only once an
    order names it in `takes_over_from`: the process of that standby is the run's from then on.
    """

    query: str
    run: str
    user: str
    command: str
    arguments: list[str]
    location: str
    token: str = ""
    standby: bool = False
    takes_over_from: str = ""


class AgentOrders(Message, frozen=True):
    """All that an agent is to run, no more and no less. `coordinator` is HOST:PORT,... for HTTP.

    `logs` are runs of which it is to send the ends of their logs with its next word.
    """

    coordinator: str
    runs: list[RunOrder]
    logs: list[WantedLog] = []
