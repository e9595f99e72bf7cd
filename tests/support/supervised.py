"""Supervised queries and agents' messages with defaults, for tests."""

from __future__ import annotations

from peacefs.coordinator.metadata.model import QueryRecord
from peacefs.protocol.messages import AgentBeat, AgentCommand, RunReport


def query(name: str = "logins", **changes: object) -> QueryRecord:
    fields: dict[str, object] = {
        "name": name,
        "user": "alice",
        "is_superuser": False,
        "command": ("count",),
        "checkpoint": f"/checkpoints/{name}",
        "nodes": (),
        "restarts_max": 3,
    }
    return QueryRecord(**{**fields, **changes})  # type: ignore[arg-type]


def beat(agent: str = "a", *runs: RunReport, process: str = "p1", **changes: object) -> AgentBeat:
    fields: dict[str, object] = {
        "host": f"host-{agent}",
        "rack": "/r",
        "commands": [AgentCommand("count", ["alice"], extra_arguments=False)],
        "runs_max": 2,
    }
    return AgentBeat(agent=agent, process=process, runs=list(runs), **{**fields, **changes})  # type: ignore[arg-type]
