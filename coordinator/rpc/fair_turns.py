"""Links with more work than fits into a turn take turns, so that a long report does not block others."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol


class Busy(Protocol):
    """A link with work to do."""

    def work(self) -> bool:
        """Do a turn's work. Return whether more is left."""

    def abort(self) -> None:
        """Break the connection at once."""


class Turns:
    """The links that wait for their next turn."""

    def __init__(self) -> None:
        self._waiting: deque[Busy] = deque()

    @property
    def busy(self) -> bool:
        """Return whether a link has more to do than fitted into its turn."""
        return bool(self._waiting)

    def queue(self, link: Busy) -> None:
        """Give a link another turn, after the links that wait already. Other tasks run between two turns."""
        self._waiting.append(link)
        if len(self._waiting) == 1:
            self._give_turn_soon()

    def _give_turn_soon(self) -> None:
        # Let the loop handle what has arrived meanwhile.
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
