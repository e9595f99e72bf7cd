"""Ask agents for the ends of logs: the request goes with the agent's next orders, the log with its next report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from peacefs.coordinator.operations.waiters import Wait, Waiters
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.messages import RunLogTail, WantedLog

run_log_wait_s: Final = 10.0


class RunLogs:
    """Logs that somebody waits for. Used from one event loop only. Other logs are not kept."""

    def __init__(self, wait: Wait) -> None:
        self._waiters = Waiters(wait)
        #: Number of waiting requests, and the logs that arrived, by agent and log.
        self._wanted: dict[str, dict[WantedLog, int]] = {}
        self._came: dict[tuple[str, WantedLog], str] = {}

    async def of(self, agent: str, wanted: WantedLog) -> str:
        """Return the end of a log. Raises BadRequest if the agent does not answer in time."""
        key, asked = (agent, wanted), self._wanted.setdefault(agent, {})
        asked[wanted] = asked.get(wanted, 0) + 1
        try:
            if key not in self._came:
                await self._waiters.wait(_name(agent, wanted), run_log_wait_s)
            text = self._came.get(key)
        finally:
            asked[wanted] -= 1
            if not asked[wanted]:
                del asked[wanted]
                self._came.pop(key, None)
            if not asked:
                self._wanted.pop(agent, None)
        if text is None:
            raise BadRequest(
                f"agent {agent} has not sent the log of run {wanted.run}: it is away, or of an older version"
            )
        return text

    def wanted_of(self, agent: str) -> list[WantedLog]:
        """Return the logs that an agent must send with its next report."""
        return list(self._wanted.get(agent, ()))

    def came(self, agent: str, tails: Iterable[RunLogTail]) -> None:
        """Receive logs from an agent. Drop logs that no caller waits for."""
        for tail in tails:
            wanted = WantedLog(tail.query, tail.run)
            if wanted in self._wanted.get(agent, ()):
                self._came[agent, wanted] = tail.text
                self._waiters.wake(_name(agent, wanted))


def _name(agent: str, wanted: WantedLog) -> str:
    return f"{agent} {wanted.query} {wanted.run}"
