"""Decide how an agent retries its coordinator, and what it logs about that. Pure: no connection, clock or log.

A fault is logged once, however often it repeats, and so is the coordinator's return.
"""

from __future__ import annotations

from typing import Final

# An agent waits after a failed attempt, twice as long each time, but less while it has runs.
agent_retry_s: Final = 0.5
agent_retry_busy_max_s: Final = 2.0
agent_retry_max_s: Final = 15.0


class CoordinatorTurns:
    """The coordinators of the cluster: which one to ask now, and which one next if it does not lead."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._unasked = count - 1
        #: The index of the coordinator to ask.
        self.current = 0

    def move_on(self) -> bool:
        """Switch to the next coordinator. Return whether to ask it at once.

        Returns False after a full round without success: pause before the next round.
        """
        self.current = (self.current + 1) % self._count
        at_once = self._unasked > 0
        self._unasked = self._unasked - 1 if at_once else self._count - 1
        return at_once

    def answered(self) -> None:
        """Note that the current coordinator leads."""
        self._unasked = self._count - 1


class CoordinatorContact:
    """Track attempts to reach the coordinator."""

    def __init__(self) -> None:
        self._failures = 0
        self._said: str | None = None

    def failed(self, fault: str, kind: str = "", *, busy: bool) -> tuple[str | None, float]:
        """Return a message to log, or None, and how many seconds to wait.

        Repeated failures of the same `kind` are not logged again. A `busy` agent waits less, because its runs end
        if the coordinator stays silent.
        """
        self._failures += 1
        longest_s = agent_retry_busy_max_s if busy else agent_retry_max_s
        # Limit the exponent: a number doubled a thousand times overflows a float.
        pause_s = min(agent_retry_s * 2.0 ** min(self._failures - 1, 30), longest_s)
        if self._said == kind:
            return None, pause_s
        self._said = kind
        return f"{fault}; trying again, less and less often", pause_s

    def answered(self) -> str | None:
        """Return a message to log, or None."""
        had_said, self._said, self._failures = self._said, None, 0
        return None if had_said is None else "the coordinator answers again"
