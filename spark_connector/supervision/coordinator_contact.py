"""The core of an agent's way to its coordinator: how long to wait before it tries again, and what to say of it.

A fault is said once, however often it repeats itself, and so is that the coordinator answers again. Knows no
connection, clock or log.
"""

from __future__ import annotations

from typing import Final

# After a failed attempt an agent waits, twice as long each time; less while runs depend on it.
agent_retry_s: Final = 0.5
agent_retry_busy_max_s: Final = 2.0
agent_retry_max_s: Final = 15.0


class CoordinatorTurns:
    """The coordinators of the cluster, of which one leads: the one to speak to, and the next when it does not."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._unasked = count - 1
        #: The place of the one to speak to.
        self.current = 0

    def move_on(self) -> bool:
        """The current one cannot be reached, or does not lead; return whether the next is to be asked at once.

        Once all were asked in vain the answer is False: there is a pause before the next round.
        """
        self.current = (self.current + 1) % self._count
        at_once = self._unasked > 0
        self._unasked = self._unasked - 1 if at_once else self._count - 1
        return at_once

    def answered(self) -> None:
        """The current one leads."""
        self._unasked = self._count - 1


class CoordinatorContact:
    """Told of each attempt. `fault` is what is said of one, and its kind, by which repetitions are known."""

    def __init__(self) -> None:
        self._failures = 0
        self._said: str | None = None

    def failed(self, fault: str, kind: str = "", *, busy: bool) -> tuple[str | None, float]:
        """Return what is to be said, if anything, and how many seconds to wait.

        A `busy` agent waits no longer than its runs can: they end when the coordinator does not answer.
        """
        self._failures += 1
        longest_s = agent_retry_busy_max_s if busy else agent_retry_max_s
        # A number that is doubled a thousand times is too large for a float.
        pause_s = min(agent_retry_s * 2.0 ** min(self._failures - 1, 30), longest_s)
        if self._said == kind:
            return None, pause_s
        self._said = kind
        return f"{fault}; trying again, less and less often", pause_s

    def answered(self) -> str | None:
        """Return what is to be said, if anything."""
        had_said, self._said, self._failures = self._said, None, 0
        return None if had_said is None else "the coordinator answers again"
