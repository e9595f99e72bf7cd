"""Messages between agents and the coordinator about supervised queries. See decision 17."""

from __future__ import annotations

import msgspec

from .base import Message

#: The first protocol version in which agents send the ends of logs.
LOGS_SINCE = 6


class AgentCommand(msgspec.Struct, frozen=True):
    """A command that an agent may start: for which users besides superusers, and whether they may add
    arguments.
    """

    name: str
    users: list[str]
    extra_arguments: bool


class RunReport(msgspec.Struct, frozen=True):
    """A run on an agent. After its end, `status` is its exit status; None if it could not be started.

    A standby with `is_ready` is waiting to take over a run.
    """

    query: str
    run: str
    ended: bool = False
    status: int | None = None
    last_words: str = ""
    is_ready: bool = False


class WantedLog(msgspec.Struct, frozen=True):
    """A run whose log was requested."""

    query: str
    run: str


class RunLogTail(msgspec.Struct, frozen=True):
    """The end of a run's log."""

    query: str
    run: str
    text: str


class AgentBeat(Message, frozen=True):
    """An agent's regular report of itself and all its runs. `process` is a random id drawn at its start.

    With `leaving` it is the last report: nothing runs any more and nothing will be started. `logs` are the ends of
    the logs that the previous orders requested.
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
    """A run that should exist: `command` is from the agent's list, `location` the checkpoint's path for this run.

    `token` authenticates the run's user, if the cluster requires it; it is replaced long before it expires. A
    `standby` has a run number but must not write to the checkpoint yet. When a later order names the standby's
    number in `takes_over_from`, its process becomes the process of that order's run.
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
    """The complete list of runs that an agent should have. `coordinator` is HOST:PORT,... for HTTP.

    `logs` are the runs whose log ends it should send with its next report.
    """

    coordinator: str
    runs: list[RunOrder]
    logs: list[WantedLog] = []
