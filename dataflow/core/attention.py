"""The time in which an observer was there to hear others.

An observer that did nothing for a second itself, since its machine was busy or a function of the user took so
long, has not heard what others said in that second. To count it as their silence would take the living for dead.
"""

from __future__ import annotations


class Attention:
    """Seconds that an observer has listened: of a longer pause between two looks only the longest step counts."""

    def __init__(self, longest_step_s: float) -> None:
        self._longest_step_s = longest_step_s
        self._looked_s: float | None = None
        #: Seconds since the first look.
        self.listened_s = 0.0

    def look(self, now_s: float) -> float:
        """Take notice of the time, and return the seconds so far. Called at regular times."""
        if self._looked_s is not None:
            self.listened_s += min(max(now_s - self._looked_s, 0.0), self._longest_step_s)
        self._looked_s = now_s
        return self.listened_s
