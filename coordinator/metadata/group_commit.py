"""Group commit: changes that arrive while an entry of the log is written share the next entry.

A change is made in memory at once. Its author, and readers that have seen it, are answered when it is durable.
Owned by the event loop. `Run` writes the entries.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol, TypeVar

from peacefs.protocol.errors import Overloaded, ServiceUnready

from .log.port import Sealed
from .store import Metadata, MetadataFault, MetadataFull
from .transaction import Transaction

commit_queue_max: Final = 10_000
# Maximum number of turns of the event loop for which an entry waits for more changes of a burst.
commit_turns_max: Final = 16
# Maximum number of changed rows that the image lacks. They are in memory, some 250 bytes each.
rows_waiting_max: Final = 1_000_000
# Interval of `Metadata.tend`.
metadata_tend_interval_s: Final = 0.25


T = TypeVar("T")
#: Called with None when the awaited entry is durable, otherwise with the reason why it is not.
Settled = Callable[[ServiceUnready | None], None]


class Commit(Protocol):
    """Make a change of the metadata and return its answer when the change is durable."""

    def __call__(self, change: Callable[[Transaction], T], /, *, in_any_case: bool = False) -> Awaitable[T]:
        """`in_any_case` is for background tasks, which cannot be refused when too many changes wait."""


class Run(Protocol):
    """Runs blocking work, one piece at a time, in order. Calls `done` on the event loop, perhaps at once."""

    def __call__(self, work: Callable[[], None], done: Callable[[BaseException | None], None], /) -> None: ...

    def close(self) -> None:
        """Wait for the work that was given so far, and stop."""


class GroupCommit:
    """Makes changes, has entries written, and wakes the waiting callers when their entry is durable.

    If the store fails, it calls `on_fatal` once; the process must stop then. While the disk is full, each entry is
    tried and its requests are refused. `on_room` is called with False when that begins and with True when it ends.
    Used by the operations, through `operations/durability/commits.py`.
    """

    def __init__(
        self,
        metadata: Metadata,
        on_fatal: Callable[[MetadataFault], None],
        on_room: Callable[[bool], None] = lambda has_room: None,
        *,
        run: Run,
        soon: Callable[[Callable[[], None]], object],
        queue_max: int = commit_queue_max,
        clock: Callable[[], float] = time.monotonic,
        on_taken: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        """`soon` schedules a callback on the event loop, after all callbacks that are ready.

        `on_taken` is called with the seconds that each entry took to be written and synced.
        """
        self._metadata = metadata
        self._rows = metadata.rows
        self._on_fatal = on_fatal
        self._on_room = on_room
        self._run = run
        self._soon = soon
        self._queue_max = queue_max
        self._clock = clock
        self._on_taken = on_taken
        #: Callbacks by the number of the entry that they wait for. A caller that only reads may wait for an
        #: earlier entry than callers before it.
        self._waiting: dict[int, list[Settled]] = {}
        #: Number of callers that wait for an entry.
        self.waiting = 0
        self._is_closed = self._has_failed = False
        self._is_writing = False
        self._is_due = False
        #: `requests` as it was in the last turn of the loop, and the number of turns that the burst has lasted.
        self._requests_seen = 0
        self._turns = 0
        self._had_room = True
        #: Number of entries written and of changes made, for metrics and benchmarks.
        self.commits = 0
        #: How long entries took to be written and synced, all together.
        self.written_s_total = 0.0
        self.requests = 0
        metadata.on_durable = self._durable
        metadata.on_refused = self._refused

    @property
    def behind(self) -> int:
        """Number of changed rows that the image lacks."""
        return self._rows.rows_waiting

    @property
    def last(self) -> int:
        """The last entry that has changes."""
        return self._rows.last

    def submit(self, change: Callable[[Transaction], T], *, in_any_case: bool = False) -> T:
        """Make a change now and return its answer. Send the answer only when entry `last` is durable.

        Raises what the change raises; Overloaded if too many callers wait, unless `in_any_case`; ServiceUnready if
        no commit is possible any more.
        """
        if self._is_closed:
            raise stopping()
        if self.waiting >= self._queue_max and not in_any_case:
            raise Overloaded(f"{self._queue_max} changes of the metadata are waiting already; try again")
        if self._rows.rows_waiting >= rows_waiting_max and not in_any_case:
            raise Overloaded(
                f"{self._rows.rows_waiting} changed rows wait until the image of the metadata has them; try again"
            )
        try:
            outcome = self._metadata.attempt(change)
        except MetadataFault as fault:
            self._fail(fault)
            raise stopping() from fault
        if outcome.error is not None:
            raise outcome.error
        self.requests += 1
        if not self._is_due:
            self._begin_soon()
        answer: T = outcome.answer
        return answer

    def wait_for(self, number: int, settled: Settled) -> None:
        """Call `settled` when an entry is durable or was undone; immediately if it is durable already."""
        if number <= self._rows.durable:
            settled(None)
            return
        self._waiting.setdefault(number, []).append(settled)
        self.waiting += 1
        self._begin_soon()

    def close(self) -> None:
        """Make all changes durable, and refuse further ones."""
        self._is_closed = True
        self._run.close()
        if self._metadata.rows.is_ahead:
            try:
                self._metadata.flush()
            except MetadataFull:
                return
            except MetadataFault as fault:
                self._fail(fault)

    def tend(self, *, idle: bool) -> None:
        """Run `Metadata.tend`. Call it every `metadata_tend_interval_s`."""
        try:
            self._metadata.tend(idle=idle)
        except MetadataFault as fault:
            self._fail(fault)

    def _begin_soon(self) -> None:
        if self._rows.ops and not self._is_writing and not self._is_due:
            self._is_due = True
            self._soon(self._begin)

    def _begin(self) -> None:
        """Write an entry once a turn of the loop brings no further change, so that a burst shares one."""
        if self.requests != self._requests_seen and self._turns < commit_turns_max:
            self._requests_seen = self.requests
            self._turns += 1
            self._soon(self._begin)
            return
        self._is_due = False
        self._turns = 0
        if self._is_writing or self._is_closed:
            return
        sealed = self._metadata.seal()
        if sealed is None:
            return
        self._is_writing = True
        begun_s = self._clock()
        self._run(lambda: self._metadata.write(sealed), lambda error: self._written(sealed, begun_s, error))

    def _written(self, sealed: Sealed, begun_s: float, error: BaseException | None) -> None:
        self._is_writing = False
        if error is None:
            self.commits += 1
            taken_s = self._clock() - begun_s
            self.written_s_total += taken_s
            self._on_taken(taken_s)
            try:
                self._metadata.written(sealed)
            except MetadataFault as fault:
                self._fail(fault)
                return
            self._tell_of_room()
        elif isinstance(error, MetadataFull):
            self._metadata.refused(sealed, error)
            self._tell_of_room()
        else:
            self._fail(error if isinstance(error, MetadataFault) else MetadataFault(repr(error)))
            return
        self._begin_soon()

    def _durable(self, number: int) -> None:
        for reached in sorted(each for each in self._waiting if each <= number):
            self._settle(self._waiting.pop(reached), lambda: None)

    def _settle(self, waiting: Iterable[Settled], outcome: Callable[[], ServiceUnready | None]) -> None:
        for settled in waiting:
            self.waiting -= 1
            # Make a new error for each caller: the traceback of an error that is raised repeatedly grows.
            settled(outcome())

    def _settle_all(self, outcome: Callable[[], ServiceUnready]) -> None:
        waiting, self._waiting = self._waiting, {}
        self._settle(itertools.chain.from_iterable(waiting.values()), outcome)

    def _refused(self, full: MetadataFull) -> None:
        self._settle_all(lambda: _no_room_in_journal(str(full)) if full.in_journal else no_room())

    def _tell_of_room(self) -> None:
        has_room = self._metadata.has_room
        if has_room is not self._had_room:
            self._had_room = has_room
            self._on_room(has_room)

    def _fail(self, fault: MetadataFault) -> None:
        if self._has_failed:
            return
        self._is_closed = self._has_failed = True
        self._settle_all(stopping)
        self._on_fatal(fault)


def run_now(metadata: Metadata, request: Callable[[Transaction], T]) -> T:
    """Commit one request by itself and return its answer. Raises what the request raises."""
    outcome = metadata.commit([request])[0]
    if outcome.error is not None:
        raise outcome.error
    answer: T = outcome.answer
    return answer


def no_room() -> ServiceUnready:
    """Return the answer to every request for a change while the disk is full."""
    return ServiceUnready(
        "the coordinator's disk is full: nothing can be changed until there is room. Free some and try again"
    )


def _no_room_in_journal(why: str) -> ServiceUnready:
    return ServiceUnready(f"{why}: nothing can be changed until there is")


def stopping() -> ServiceUnready:
    """Return the error for all requests after which no commit is possible."""
    return ServiceUnready("the coordinator is stopping and commits no more; ask again when it is back")
