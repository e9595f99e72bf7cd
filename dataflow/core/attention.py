"""The time during which an observer could hear others.

An observer that was stalled for a second, by a busy machine or a slow user function, has not heard what others
said in that second. If that counted as silence of the others, the observer would declare live nodes dead.
"""

from __future__ import annotations


class Attention:
    """Counts the seconds that an observer has listened.

    If two looks are more than `longest_step_s` apart, only `longest_step_s` of the gap counts.
    """

    def __init__(self, longest_step_s: float) -> None:
        self._longest_step_s = longest_step_s
        self._looked_s: float | None = None
        #: Seconds listened since the first look.
        self.listened_s = 0.0

    def look(self, now_s: float) -> float:
        """Update the time listened, and return it. Must be called at regular intervals."""
        if self._looked_s is not None:
            self.listened_s += min(max(now_s - self._looked_s, 0.0), self._longest_step_s)
        self._looked_s = now_s
        return self.listened_s
