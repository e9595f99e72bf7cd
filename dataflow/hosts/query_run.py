"""The part of a run that does not depend on its nodes: a thread with an event loop, sources and sinks.

A subclass starts nodes and passes messages in `_main`. Any failure stops the run, and `wait` raises it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self

import pyarrow as pa

from peacefs.dataflow.model.batches import Batch, pieces
from peacefs.dataflow.model.reasons import reason_of
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.protocol.errors import InvalidQuery, PeacefsError, QueryFailed

from .interface import Sink, Source
from .row_counts import RowCounts
from .run_events import Observer, RunEvent
from .source_thread import END, SourceThread
from .unexpected import on_unexpected

# Maximum number of rows per batch that a source offers. Larger batches are cut.
dataflow_batch_rows_max: Final = 65_536
# Maximum number of consecutive starts of a node that fail before the node works. Then the query stops.
dataflow_failed_starts_max: Final = 5


class HostedRun(ABC):
    """A query that runs in the background: its thread with an event loop, its sources and sinks, its end.

    `wait` returns once every sink has received its last row, and raises the first failure. After a failure no sink
    is called any more. `EdgeRun` and `RingRun` derive from it. Users call `wait` and `close`, from any thread.
    """

    def __init__(self, name: str, *, threads: int, observer: Observer | None) -> None:
        """`threads`: the maximum number of blocking calls of the event loop at a time."""
        self._name, self._observer = name, observer
        self._ended = threading.Event()
        self._failure: str | None = None
        self.rows = RowCounts()
        # True if sources should give no more rows, since the query is to stop.
        self._holds_sources = False
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(threads))
        self._tasks: set[asyncio.Task[None]] = set()
        # For each node, the number of consecutive failed starts.
        self._failed_starts: dict[str, int] = {}
        self._thread = threading.Thread(target=self._run_loop, name=f"dataflow {name}", daemon=True)

    # -- for the user -----------------------------------------------------------------------------------

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until every sink has received its last row. Raises QueryFailed if the query stopped."""
        if not self._ended.wait(timeout_s):
            raise TimeoutError(f"query {self._name!r} is still running after {timeout_s} s")
        if self._failure is not None:
            raise QueryFailed(self._failure)

    def hold_sources(self) -> None:
        """Take no more rows from sources, because the query is about to be closed."""
        self._holds_sources = True

    def close(self) -> None:
        """End all nodes. The caller remains responsible for the checkpoint store."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the loop -----------------------------------------------------------------------------------------

    @abstractmethod
    async def _main(self) -> None:
        """Run until `_stopped` is set, then end the nodes."""

    def _run_loop(self) -> None:
        # Set when the query should stop, and when a source may have room again.
        self._stopped, self._room = asyncio.Event(), asyncio.Event()
        try:
            self._loop.run_until_complete(self._watched())
        except BaseException as error:
            self._failure = f"the host of query {self._name!r} failed: {error!r}"
        finally:
            self._ended.set()
            self._loop.close()

    async def _watched(self) -> None:
        on_unexpected(lambda error: self._fail(f"the host of query {self._name!r} failed: {error!r}"))
        await self._main()

    def _stop(self) -> None:
        self._ended.set()
        self._stopped.set()

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self._stop()

    def _begin(self, steps: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(steps)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _call(self, step: Callable[[], None]) -> None:
        """Perform a step on the loop soon. Called from any thread; does nothing after the end."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(step)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(reason_of_failure(error))

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- nodes --------------------------------------------------------------------------------------------

    def _is_there(self, place: str) -> None:
        """Note that a node has started successfully."""
        self._failed_starts[place] = 0

    def _begins(self, place: str) -> None:
        """Count a start of a node. Raises QueryFailed if too many consecutive starts have failed."""
        failed = self._failed_starts.get(place, 0)
        if failed >= dataflow_failed_starts_max:
            raise QueryFailed(
                f"node {place!r} has ended {failed} times in a row before it could begin: its last lines on "
                "standard error say why"
            )
        self._failed_starts[place] = failed + 1

    # -- rows, in and out ---------------------------------------------------------------------------------

    async def _rows_of(
        self, source: str, rows: Iterator[pa.RecordBatch], kind: StreamType, has_room: Callable[[], bool]
    ) -> AsyncIterator[pa.RecordBatch]:
        """Yield rows while there is room. The iterator may block, so it runs on another thread."""
        asked = SourceThread(source, rows)
        try:
            while True:
                try:
                    given = await asked.next()
                    batch = None if given is END else kind.conform(given)
                except (Exception, SystemExit) as error:  # whatever the user's iterator raises
                    raise source_failed(source, error) from error
                if batch is None:
                    return
                for first in range(0, batch.num_rows, dataflow_batch_rows_max):
                    for piece in pieces(source, Batch(1, batch.slice(first, dataflow_batch_rows_max))):
                        while self._holds_sources or not has_room():
                            self._room.clear()
                            began_s = time.monotonic()
                            await self._room.wait()
                            self.rows.waited_s[source] += time.monotonic() - began_s
                        self.rows.given[source] += piece.rows.num_rows
                        yield piece.rows
        finally:
            asked.close()

    def _deliver(self, name: str, sink: Sink, rows: pa.RecordBatch) -> None:
        if self._failure is not None:
            # A sink that has failed is not called again.
            return
        try:
            sink(rows)
            self.rows.taken[name] += rows.num_rows
        except (Exception, SystemExit) as error:  # whatever the user's function raises
            self._fail(f"sink {name!r} failed: {reason_of_failure(error)}")

    def _tell(self, event: RunEvent) -> None:
        if self._observer is not None:
            self._observer(time.monotonic(), event)


def check_ends(
    wanted_sources: Iterable[str],
    wanted_sinks: Iterable[str],
    sources: Mapping[str, Source],
    sinks: Mapping[str, Sink],
) -> None:
    """Raise InvalidQuery unless each source has rows, and each sink has a function."""
    ends: tuple[tuple[str, Iterable[str], Mapping[str, Any]], ...] = (
        ("source", wanted_sources, sources),
        ("sink", wanted_sinks, sinks),
    )
    for kind, wanted, given in ends:
        missing = set(wanted) ^ set(given)
        if missing:
            raise InvalidQuery(f"{kind} {min(missing)!r} is in the query or in what was given, and not in both")
    for name, rows in sources.items():
        if not isinstance(rows, Iterable):
            raise InvalidQuery(f"source {name!r} must be an iterable of record batches, and is {rows!r}")
    for name, sink in sinks.items():
        if not callable(sink):
            raise InvalidQuery(f"sink {name!r} must be a function of a record batch, and is {sink!r}")


def source_failed(source: str, error: BaseException) -> QueryFailed:
    return QueryFailed(f"source {source!r} failed: {reason_of_failure(error)}")


def reason_of_failure(error: BaseException) -> str:
    """Return the message of an error; of an error of the user's code, with its type and its line."""
    return error.message if isinstance(error, PeacefsError) else reason_of(error)
