"""The thread that commits, as the coordinator's event loop sees it: it commits at any moment, and is heard later.

What waits may be committed before any look at the metadata that is not in a view with the look before, for the
real thread does not wait for the loop. The loop hears of a commit only after others have acted upon what they saw.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from random import Random
from typing import Any, TypeVar

import apsw
from peacefs.coordinator.metadata.sqlite.reader import SqliteReader
from support.immediate_commit import ImmediateCommit

from peacefs.coordinator.metadata.group_commit import no_room
from peacefs.coordinator.metadata.sqlite.store import MetadataInMemory
from peacefs.coordinator.metadata.transaction import Transaction

T = TypeVar("T")
_COMMIT_S_MAX = 0.004
_OVERTAKES = 0.3
#: The loop may be busy with others for so long before it hears of a commit: mostly a moment.
_HEARD_AFTER_S = (0.001, 0.004, 0.02, 0.3)


class _Waiting:
    def __init__(self, change: Callable[[Transaction], Any]) -> None:
        self.change = change
        self.outcome: Future[Any] | None = None


class WriterThread:
    """Commits in order, and is heard in order. `committed` is called after each commit.

    While `is_full` says so, the disk has no room, and changes are refused.
    """

    def __init__(
        self,
        metadata: MetadataInMemory,
        random: Random,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        committed: Callable[[], None],
        is_full: Callable[[], bool],
        on_fatal: Callable[[BaseException], object],
    ) -> None:
        self._metadata = metadata
        self._commits = ImmediateCommit(metadata, on_fatal)
        self._random = random
        self._now = now
        self._sleep = sleep
        self._committed = committed
        self._is_full = is_full
        self._waiting: deque[_Waiting] = deque()
        self._commits_at_s = self._heard_at_s = now()

    def reader(self) -> SqliteReader:
        """A reader that the thread may overtake between any two of its views."""
        connection: Any = _OvertakenConnection(self._metadata.imaged(), self._overtake)
        return SqliteReader(connection)

    async def commit(self, change: Callable[[Transaction], T], /, *, in_any_case: bool = False) -> T:
        waiting = _Waiting(change)
        self._waiting.append(waiting)
        soonest_s = self._now() + self._random.uniform(0.0, _COMMIT_S_MAX)
        self._commits_at_s = max(self._commits_at_s + _COMMIT_S_MAX / 1000, soonest_s)
        await self._sleep(self._commits_at_s - self._now())
        while waiting.outcome is None:
            self._commit_next()
        heard_s = self._now() + self._random.uniform(0.0, self._random.choice(_HEARD_AFTER_S))
        self._heard_at_s = max(self._heard_at_s + _COMMIT_S_MAX / 1000, heard_s)
        await self._sleep(self._heard_at_s - self._now())
        result: T = waiting.outcome.result()
        return result

    def _overtake(self) -> None:
        if self._waiting and self._random.random() < _OVERTAKES:
            self._commit_next()

    def _commit_next(self) -> None:
        waiting = self._waiting.popleft()
        if self._is_full():
            waiting.outcome = Future()
            waiting.outcome.set_exception(no_room())
            return
        waiting.outcome = self._commits.submit(waiting.change)
        self._committed()


class _OvertakenConnection:
    """The part of a connection that a reader needs. Within a view nobody overtakes."""

    def __init__(self, connection: apsw.Connection, overtake: Callable[[], None]) -> None:
        self._connection = connection
        self._overtake = overtake
        self._is_in_view = False

    def execute(self, statement: str, parameters: tuple[Any, ...] = ()) -> apsw.Cursor:
        if not self._is_in_view:
            self._overtake()
        if statement in ("BEGIN", "COMMIT"):
            self._is_in_view = statement == "BEGIN"
        return self._connection.execute(statement, parameters)

    def close(self) -> None:
        """It is the writer's."""
