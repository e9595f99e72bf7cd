"""Delays answers until all that a request has read or changed is durable.

A request may read a change of another request that is not durable yet. So its coroutine is run step by step, from
one await to the next. Within a step nothing else runs, so that `Rows.ahead` after it tells what this request has
read.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Protocol, TypeVar

from peacefs.coordinator.metadata.group_commit import no_room

T = TypeVar("T")


class Looking(Protocol):
    """The part of `Rows` that tells what was read."""

    ahead: int
    durable: int
    #: Number of times that entries were undone.
    undone: int


class Watched:
    """The entries on which one request depends so far."""

    __slots__ = ("_is_running", "_needed", "_rows", "_undone")

    def __init__(self, rows: Looking) -> None:
        self._rows = rows
        self._needed = 0
        self._is_running = False
        #: `Looking.undone` when the request first read something that is not durable; None if it depends on
        #: nothing.
        self._undone: int | None = None

    @property
    def needed(self) -> int:
        """The last entry that must be durable before anything is sent, 0 for none."""
        if self._is_running:
            self._note()
        return self._needed if self._needed > self._rows.durable else 0

    @property
    def is_undone(self) -> bool:
        """Whether a change that the request has read may have been undone since."""
        return self._undone is not None and self._undone != self._rows.undone

    def _note(self) -> None:
        rows = self._rows
        if rows.ahead > rows.durable:
            self._needed = max(self._needed, rows.ahead)
            if self._undone is None:
                self._undone = rows.undone

    @types.coroutine
    def run(self, steps: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """Run a coroutine to its end, and record what each of its steps reads."""
        rows = self._rows
        send: Callable[[Any], Any] = steps.send
        value: Any = None
        try:
            while True:
                rows.ahead = 0
                self._is_running = True
                if self._needed <= rows.durable and not self.is_undone:
                    self._undone = None
                try:
                    waited = send(value)
                except StopIteration as stop:
                    result: T = stop.value
                    return result
                finally:
                    self._note()
                    self._is_running = False
                try:
                    value = yield waited
                    send = steps.send
                except BaseException as error:
                    value, send = error, steps.throw
        finally:
            steps.close()


class DurableAnswers:
    """Waits for the entries on which requests depend. Both doors use it."""

    def __init__(self, rows: Looking, until_durable: Callable[[int], Awaitable[None]]) -> None:
        """`until_durable` waits for an entry, and raises ServiceUnready if that is undone."""
        self._rows = rows
        self._until_durable = until_durable

    def watched(self) -> Watched:
        """Return a new `Watched` for one request."""
        return Watched(self._rows)

    async def settle(self, watched: Watched) -> None:
        """Wait until all that a request depends on so far is durable. Raises ServiceUnready if it was undone."""
        while needed := watched.needed:
            await self._until_durable(needed)
        if watched.is_undone:
            raise no_room()
