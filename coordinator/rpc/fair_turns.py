"""Links that have more to do than fits into a turn take turns, so that no long report holds others up."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol


class Busy(Protocol):
    """A link with something to do."""

    def work(self) -> bool:
        """Does a turn's worth. Whether there is more."""

    def abort(self) -> None:
        """Breaks the connection at once."""


class Turns:
    """The links that wait for their next turn. Knows the event loop, and nothing of what is done in a turn."""

    def __init__(self) -> None:
        self._waiting: deque[Busy] = deque()

    @property
    def busy(self) -> bool:
        """Return whether a link has more to do than fitted into its turn."""
        return bool(self._waiting)

    def queue(self, link: Busy) -> None:
        """Gives a link another turn, after those that wait already; between two turns the loop does all else."""
        self._waiting.append(link)
        if len(self._waiting) == 1:
            self._give_turn_soon()

    def _give_turn_soon(self) -> None:
        # Between two turns the loop looks at what has arrived meanwhile.
        asyncio.get_running_loop().call_later(0, self._give_turn)

    def _give_turn(self) -> None:
        link = self._waiting[0]
        more = False
        try:
            more = link.work()
        except Exception:
            link.abort()
            raise
        finally:
            self._waiting.popleft()
            if more:
                self._waiting.append(link)
            if self._waiting:
                self._give_turn_soon()
