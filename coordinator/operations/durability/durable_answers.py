"""Delays answers until the metadata that they were made from is durable.

A request may read rows that another request changed and that are not durable yet. So a request's coroutine runs
step by step, from one wait to the next. No other request runs during a step. So after a step, `Rows.ahead` is the
last log entry whose changes the step has read.

The first step of a call runs outside any task, and the other steps in another context. So the first step must not
use functions that need the current task, such as `asyncio.timeout`. A token of a context variable that is set in
the first step cannot reset it after a wait.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Protocol, TypeVar

from peacefs.coordinator.metadata.group_commit import Settled, no_room

T = TypeVar("T")


class ReadRows(Protocol):
    """The rows that requests read. `ahead` is the last entry whose changes were read since it was set to 0."""

    ahead: int
    durable: int
    #: Number of times that entries were undone.
    undone: int


class Durable(Protocol):
    """Tells when entries of the log are durable, as `Commits` does."""

    def when_durable(self, number: int, settled: Settled, /) -> None: ...

    def until_durable(self, number: int, /) -> Awaitable[None]: ...


class Watched:
    """The log entries on which one request depends so far."""

    __slots__ = ("_is_running", "_needed", "_rows", "_undone")

    def __init__(self, rows: ReadRows) -> None:
        self._rows = rows
        self._needed = 0
        self._is_running = False
        #: `ReadRows.undone` when the request first read an entry that was not durable; None if there is none.
        self._undone: int | None = None

    @property
    def needed(self) -> int:
        """The last entry that must be durable before the answer is sent; 0 if the answer need not wait."""
        if self._is_running:
            self._note()
        return self._needed if self._needed > self._rows.durable else 0

    @property
    def awaited(self) -> int:
        """The entry to wait for after the last step; 0 for none, or if something that was read was undone."""
        if self._needed <= self._rows.durable or self.is_undone:
            return 0
        return self._needed

    @property
    def is_undone(self) -> bool:
        """Whether something that the request has read may have been undone since."""
        return self._undone is not None and self._undone != self._rows.undone

    @property
    def is_fenced(self) -> bool:
        """Whether the answer needed an entry of the log, which the journal accepts from the leader only."""
        return self._needed > 0

    def _note(self) -> None:
        rows = self._rows
        if rows.ahead > rows.durable:
            self._needed = max(self._needed, rows.ahead)
            if self._undone is None:
                self._undone = rows.undone

    def step(self, send: Callable[[Any], Any], value: Any) -> Any:
        """Run one step of a coroutine, and note which entries it reads. Return what the coroutine waits for.

        Raises StopIteration with the result if the step is the last one, and what the step raises.
        """
        rows = self._rows
        rows.ahead = 0
        if self._undone is not None and self._needed <= rows.durable and not self.is_undone:
            self._undone = None
        self._is_running = True
        try:
            return send(value)
        finally:
            if rows.ahead:
                self._note()
            self._is_running = False

    @types.coroutine
    def rest(self, steps: Coroutine[Any, Any, T], waited: Any) -> Generator[Any, Any, T]:
        """Wait for what the first step of a coroutine returned, and run its other steps."""
        try:
            while True:
                try:
                    value = yield waited
                    send: Callable[[Any], Any] = steps.send
                except BaseException as error:
                    value, send = error, steps.throw
                try:
                    waited = self.step(send, value)
                except StopIteration as stop:
                    result: T = stop.value
                    return result
        finally:
            steps.close()

    async def run(self, steps: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, and note which entries each of its steps reads."""
        try:
            waited = self.step(steps.send, None)
        except StopIteration as stop:
            result: T = stop.value
            return result
        return await self.rest(steps, waited)


class DurableAnswers:
    """Watches requests, and delays their answers until the metadata that they have read is durable."""

    def __init__(self, rows: ReadRows, commits: Durable) -> None:
        self.rows = rows
        self._commits = commits
        #: Calls a function when an entry is durable, or with the reason why it was undone.
        self.when_durable: Callable[[int, Settled], None] = commits.when_durable

    def watched(self) -> Watched:
        """Return a watcher for one request."""
        return Watched(self.rows)

    async def settle(self, watched: Watched) -> None:
        """Wait until every entry that a request has read is durable. Raises ServiceUnready."""
        while needed := watched.needed:
            await self._commits.until_durable(needed)
        if watched.is_undone:
            raise no_room()
