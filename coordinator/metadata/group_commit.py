"""Group commit: requests that wait share one commit, and are answered when it is on the disk.

One thread owns the writing. Alone, a request pays for one commit and waits for nobody; together they pay for one
among them, and wait a moment for those who are likely to come along (`CommitDelay`). Knows no request and no SQL.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from peacefs.protocol.errors import Overloaded, ServiceUnready

from .store import Metadata, MetadataFault, MetadataFull, RequestOutcome, Transaction

commit_batch_max: Final = 256
commit_queue_max: Final = 10_000
# A commit waits for changes that are likely to come, but for no longer than this part of what commits take.
commit_delay_share: Final = 0.25
commit_delay_s_max: Final = 0.005
# When no change has come for so long, what the log holds is copied into the store; in any case after the second.
# Each time changes wait for two syncs; until then the log alone holds them.
metadata_tend_interval_s: Final = 0.25


T = TypeVar("T")


class Commit(Protocol):
    """Run a change in a transaction of the metadata; give its result once that is on the disk."""

    def __call__(self, change: Callable[[Transaction], T], /, *, in_any_case: bool = False) -> Awaitable[T]:
        """`in_any_case` is for background tasks: nobody can tell them to come again when too many changes wait."""


class CommitDelay:
    """Tells how many changes a commit may wait for, and for how long (PostgreSQL: commit_delay). Pure.

    A client that has been answered often asks for the next change at once. A commit that began without it would be
    a small one, and so would that client's be; each costs a sync, and its way through the journal.
    """

    #: Over so many commits their time is smoothed.
    _COMMITS = 8

    def __init__(self, share: float = commit_delay_share) -> None:
        self._share = share
        self._commit_s = 0.0
        #: As many changes as were wanted at once lately.
        self.expected = 1

    @property
    def wait_s(self) -> float:
        """Return how long those who are expected may be waited for: a part of what a commit takes."""
        return min(self._commit_s * self._share, commit_delay_s_max)

    def committed(self, together: int, waiting: int, taken_s: float) -> None:
        """So many changes were committed together, and so many more came in that time."""
        self.expected = min(together + waiting, commit_batch_max)
        self._commit_s += (taken_s - self._commit_s) / self._COMMITS


@dataclass(frozen=True)
class CommitBounds:
    """The bounds of one writer; tests set smaller ones."""

    #: The most changes that share one commit, and the most that wait.
    batch_max: int = commit_batch_max
    queue_max: int = commit_queue_max


class _Waiting(NamedTuple):
    request: Callable[[Transaction], Any]
    future: Future[Any]


class GroupCommit:
    """The writer thread. When the store has failed it calls `on_fatal`, once: stop the coordinator then.

    While the disk has no room, each commit is tried and its requests are refused; `on_room` is told when that
    begins (False) and when it ends (True).
    """

    def __init__(
        self,
        metadata: Metadata,
        on_fatal: Callable[[MetadataFault], None],
        on_room: Callable[[bool], None] = lambda has_room: None,
        *,
        bounds: CommitBounds | None = None,
        clock: Callable[[], float] = time.monotonic,
        deliver: Callable[[Callable[[], None]], object] = lambda settle: settle(),
        on_taken: Callable[[float], object] = lambda seconds: None,
        delay: CommitDelay | None = None,
    ) -> None:
        """`deliver` has the futures of a commit settled in one go: it is handed that in the writer's thread.

        `on_taken` is told, in that thread, how many seconds each commit took, its sync included.
        """
        self._metadata = metadata
        self._on_fatal = on_fatal
        self._on_room = on_room
        self._bounds = bounds or CommitBounds()
        self._clock = clock
        self._deliver = deliver
        self._on_taken = on_taken
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._closed = False
        #: Commits made and requests they carried, for metrics and benchmarks.
        self.commits = 0
        self.requests = 0
        self._had_room = True
        self._delay = delay or CommitDelay()
        #: So many waiting changes wake the writer.
        self._wakes_at = 1
        self._thread = threading.Thread(target=self._run, name="metadata-writer", daemon=True)
        self._thread.start()

    def submit(self, request: Callable[[Transaction], T], *, in_any_case: bool = False) -> Future[T]:
        """`in_any_case` is for what the coordinator does by itself: it is little, and waits however many wait."""
        future: Future[T] = Future()
        with self._changed:
            if self._closed:
                raise _unready()
            queue_max = self._bounds.queue_max
            if len(self._waiting) >= queue_max and not in_any_case:
                raise Overloaded(f"{queue_max} changes of the metadata are waiting already; try again")
            self._waiting.append(_Waiting(request, future))
            if len(self._waiting) >= self._wakes_at:
                self._changed.notify()
        return future

    @property
    def waiting(self) -> int:
        """Return how many changes wait."""
        return len(self._waiting)

    def close(self) -> None:
        """Commits what waits, takes nothing more, and ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while (batch := self._next_batch()) is not None:
            try:
                self._metadata.tend(idle=not batch)
            except MetadataFault as fault:
                self._fail([waiting for waiting in batch if waiting.future.set_running_or_notify_cancel()])
                self._on_fatal(fault)
                return
            # A caller may have given up while it waited; from here on its request is not taken back.
            batch = [waiting for waiting in batch if waiting.future.set_running_or_notify_cancel()]
            if not batch:
                continue
            begun_s = self._clock()
            try:
                outcomes = self._metadata.commit([waiting.request for waiting in batch])
            except MetadataFull as full:
                self._tell_of_room()
                refusal = partial(_no_room_in_journal, str(full)) if full.in_journal else no_room
                self._deliver(partial(_refuse, batch, refusal))
                continue
            except MetadataFault as fault:
                self._fail(batch)
                self._on_fatal(fault)
                return
            taken_s = self._clock() - begun_s
            self._delay.committed(len(batch), len(self._waiting), taken_s)
            self._on_taken(taken_s)
            self._tell_of_room()
            self.commits += 1
            self.requests += len(batch)
            self._deliver(partial(_settle_all, batch, outcomes))

    def _next_batch(self) -> list[_Waiting] | None:
        """Return the waiting changes up to a limit, nothing after a pause, and None when the end was requested and
        all is done.
        """
        with self._changed:
            if not self._waiting:
                if self._closed:
                    return None
                self._changed.wait(metadata_tend_interval_s)
            expected = min(self._delay.expected, self._bounds.batch_max)
            if 0 < len(self._waiting) < expected and not self._closed:
                self._wakes_at = expected
                self._changed.wait(self._delay.wait_s)
                self._wakes_at = 1
            return [self._waiting.popleft() for _ in range(min(len(self._waiting), self._bounds.batch_max))]

    def _tell_of_room(self) -> None:
        has_room = self._metadata.has_room
        if has_room is not self._had_room:
            self._had_room = has_room
            self._on_room(has_room)

    def _fail(self, batch: list[_Waiting]) -> None:
        with self._changed:
            self._closed = True
            never_tried = [waiting for waiting in self._waiting if waiting.future.set_running_or_notify_cancel()]
            self._waiting.clear()
        self._deliver(partial(_refuse, [*batch, *never_tried], _unready))


def run_now(metadata: Metadata, request: Callable[[Transaction], T]) -> T:
    """Commits one request by itself and gives its answer, or raises the error that undid it."""
    outcome = metadata.commit([request])[0]
    if outcome.error is not None:
        raise outcome.error
    answer: T = outcome.answer
    return answer


def _settle_all(batch: Sequence[_Waiting], outcomes: Sequence[RequestOutcome]) -> None:
    for waiting, outcome in zip(batch, outcomes, strict=True):
        _settle(waiting.future, outcome)


def _refuse(batch: Sequence[_Waiting], error: Callable[[], ServiceUnready]) -> None:
    for waiting in batch:
        waiting.future.set_exception(error())


def _settle(future: Future[Any], outcome: RequestOutcome) -> None:
    if outcome.error is not None:
        future.set_exception(outcome.error)
    else:
        future.set_result(outcome.answer)


def no_room() -> ServiceUnready:
    """Return the answer to every request for a change while the disk is full."""
    return ServiceUnready(
        "the coordinator's disk is full: nothing can be changed until there is room. Free some and try again"
    )


def _no_room_in_journal(why: str) -> ServiceUnready:
    return ServiceUnready(f"{why}: nothing can be changed until there is")


def _unready() -> ServiceUnready:
    return ServiceUnready("the coordinator is stopping and commits no more; ask again when it is back")
