"""Answers wait until what they were made of is durable: what one request has seen, another one may have changed.

A coroutine is taken step by step, from one wait to the next; within a step nothing else runs, so that what
`Rows.ahead` says after it is what this one has looked at.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Protocol, TypeVar

from peacefs.coordinator.metadata.group_commit import no_room

T = TypeVar("T")


class Looking(Protocol):
    """The rows that are looked at."""

    ahead: int
    durable: int
    #: How often entries were undone.
    undone: int


class Watched:
    """The entries on which one request depends, as far as it has come."""

    __slots__ = ("_is_running", "_needed", "_rows", "_undone")

    def __init__(self, rows: Looking) -> None:
        self._rows = rows
        self._needed = 0
        self._is_running = False
        #: What `Looking.undone` was when this began to look at what is not durable; None while nothing is awaited.
        self._undone: int | None = None

    @property
    def needed(self) -> int:
        """The last entry that has to be durable before anything is told; 0 where nothing has to be waited for."""
        if self._is_running:
            self._note()
        return self._needed if self._needed > self._rows.durable else 0

    @property
    def is_undone(self) -> bool:
        """Return whether something that was looked at may have been undone since."""
        return self._undone is not None and self._undone != self._rows.undone

    def _note(self) -> None:
        rows = self._rows
        if rows.ahead > rows.durable:
            self._needed = max(self._needed, rows.ahead)
            if self._undone is None:
                self._undone = rows.undone

    @types.coroutine
    def run(self, steps: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """Run a coroutine to its end, and note what each of its steps looks at."""
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
    """Runs requests whose answers are to be told."""

    def __init__(self, rows: Looking, until_durable: Callable[[int], Awaitable[None]]) -> None:
        """`until_durable` waits for an entry, and raises ServiceUnready when it was refused."""
        self._rows = rows
        self._until_durable = until_durable

    def watched(self) -> Watched:
        """Return what watches one request."""
        return Watched(self._rows)

    async def settle(self, watched: Watched) -> None:
        """Wait until all that a request depends on so far is durable. Raises ServiceUnready."""
        while needed := watched.needed:
            await self._until_durable(needed)
        if watched.is_undone:
            raise no_room()
