"""Group commit: changes are made at once, and share an entry of the log with all that come while one is written.

Owned by the event loop. What writes the entries is given (`Run`): a thread in the service. Whoever has changed
something, or has seen what is not durable yet, is told when it is. Knows no request.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from queue import SimpleQueue
from typing import Final, Protocol, TypeVar

from peacefs.protocol.errors import Overloaded, ServiceUnready

from .log.port import Sealed
from .store import Metadata, MetadataFault, MetadataFull
from .transaction import Transaction

commit_queue_max: Final = 10_000
# For so many turns of the event loop an entry waits for changes that come in a burst.
commit_turns_max: Final = 16
# Rows that have changed and that the image lacks are in memory: some 250 bytes each.
rows_waiting_max: Final = 1_000_000
# So often the one that commits does what is due beside: see `Metadata.tend`.
metadata_tend_interval_s: Final = 0.25


T = TypeVar("T")
#: Told that what was waited for is durable (None), or why it is not.
Settled = Callable[[ServiceUnready | None], None]


class Commit(Protocol):
    """Run a change in a transaction of the metadata; give its result once that is on the disk."""

    def __call__(self, change: Callable[[Transaction], T], /, *, in_any_case: bool = False) -> Awaitable[T]:
        """`in_any_case` is for background tasks: nobody can tell them to come again when too many changes wait."""


class Run(Protocol):
    """Does what blocks, elsewhere, and reports the outcome on the event loop; in order, one at a time."""

    def __call__(self, work: Callable[[], None], done: Callable[[BaseException | None], None], /) -> None: ...

    def close(self) -> None:
        """Return when all is done."""


class GroupCommit:
    """Changes and those who wait for them. When the store has failed it calls `on_fatal`, once: stop then.

    While the disk has no room, each entry is tried and its requests are refused; `on_room` is told when that
    begins (False) and when it ends (True).
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
        """`soon` calls something on the event loop once all that is ready has had its turn.

        `on_taken` is told how many seconds each entry took to be written, its sync included.
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
        #: Those who wait for an entry, by its number; who has only looked may wait for an earlier one than others.
        self._waiting: dict[int, list[Settled]] = {}
        #: How many wait.
        self.waiting = 0
        self._is_closed = self._has_failed = False
        self._is_writing = False
        self._is_due = False
        #: How many changes there were in the last turn of the loop, and how many turns a burst has lasted.
        self._requests_seen = 0
        self._turns = 0
        self._had_room = True
        #: Entries made and changes they carried, for metrics and benchmarks.
        self.commits = 0
        self.requests = 0
        metadata.on_durable = self._durable
        metadata.on_refused = self._refused

    @property
    def behind(self) -> int:
        """Return how many changed rows the image lacks."""
        return self._rows.rows_waiting

    def submit(self, change: Callable[[Transaction], T], settled: Settled, *, in_any_case: bool = False) -> T:
        """Make a change now and return its answer, which may be told once `settled` was called with None.

        Raises what the change raises, Overloaded when too many wait already, unless `in_any_case`, and
        ServiceUnready when no commit is possible any more; then `settled` is not called.
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
        self.wait_for(self._rows.last, settled)
        answer: T = outcome.answer
        return answer

    def wait_for(self, number: int, settled: Settled) -> None:
        """Have `settled` called when an entry is durable, or is not to be; at once when it is durable."""
        if number <= self._rows.durable:
            settled(None)
            return
        self._waiting.setdefault(number, []).append(settled)
        self.waiting += 1
        if not self._is_writing and not self._is_due:
            self._is_due = True
            self._soon(self._begin)

    def close(self) -> None:
        """Make durable all that was changed, and take nothing more."""
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
        """Do what is due beside the commits, to be called every `metadata_tend_interval_s`."""
        try:
            self._metadata.tend(idle=idle)
        except MetadataFault as fault:
            self._fail(fault)

    def _begin(self) -> None:
        """Write once a turn of the loop has brought no further change: those of one burst share an entry."""
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
            self._on_taken(self._clock() - begun_s)
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
        if self._rows.ops and not self._is_due:
            self._is_due = True
            self._soon(self._begin)

    def _durable(self, number: int) -> None:
        for reached in sorted(each for each in self._waiting if each <= number):
            self._settle(self._waiting.pop(reached), lambda: None)

    def _settle(self, waiting: Iterable[Settled], outcome: Callable[[], ServiceUnready | None]) -> None:
        for settled in waiting:
            self.waiting -= 1
            # An error of its own for each: where one is raised again and again its traceback grows.
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


class WriterThread:
    """A thread that writes entries; the loop hears of each on the loop."""

    def __init__(self, hand_over: Callable[[Callable[[], None]], object]) -> None:
        """`hand_over` has something called on the event loop, from this thread."""
        self._hand_over = hand_over
        self._work: SimpleQueue[tuple[Callable[[], None], Callable[[BaseException | None], None]] | None] = (
            SimpleQueue()
        )
        self._thread = threading.Thread(target=self._serve, name="metadata-writer", daemon=True)
        self._thread.start()

    def __call__(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self._work.put((work, done))

    def close(self) -> None:
        self._work.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            work, done = item
            error: BaseException | None = None
            try:
                work()
            except Exception as raised:
                error = raised
            self._hand_over(lambda done=done, error=error: done(error))  # type: ignore[misc]


def run_now(metadata: Metadata, request: Callable[[Transaction], T]) -> T:
    """Commit one request by itself and give its answer, or raise the error that undid it."""
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
    """Return the answer to every request when no commit is possible any more."""
    return ServiceUnready("the coordinator is stopping and commits no more; ask again when it is back")
