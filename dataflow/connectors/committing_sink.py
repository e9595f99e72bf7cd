"""A sink that prepares and commits rows on a thread of its own, and begins again after a failure."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from typing import Final

import pyarrow as pa

from peacefs.dataflow.model.numbers import is_number
from peacefs.protocol.errors import InvalidQuery, PeerTimeout, PeerUnreachable, QueryFailed, StartupError

from .interface import Committer, SinkContext
from .sink_progress import CommitRule, SinkProgress

# How long a query waits for the external system when it begins.
dataflow_sink_begin_s: Final = 30.0
# The wait before the first attempt to reconnect. It doubles up to the maximum.
dataflow_sink_retry_s: Final = 0.2
dataflow_sink_retry_s_max: Final = 5.0

log = logging.getLogger("peacefs.dataflow")


class CommittingSink:
    """Rows of a sink that become visible exactly once. Subclasses choose the committer.

    If the external system is away, or each commit fails, rows wait, and the query slows down. After `patience_s`
    the query stops and can be resumed. After each failure the committer is opened again, and returns the number of
    the last row that it has, so the outcome of the failed commit need not be known. The driver calls all methods;
    the committer runs on the sink's thread.
    """

    def __init__(self, name: str, committer: Committer, rule: CommitRule, *, patience_s: float = 600.0) -> None:
        """`name`: the sink in messages."""
        for what, value in (("interval_s", rule.interval_s), ("patience_s", patience_s)):
            if not is_number(value) or not 0 <= value < float("inf"):
                raise InvalidQuery(f"{what}={value!r}: seconds are wanted, 0 or more")
        self.name = name
        self._committer, self._rule, self._patience_s = committer, rule, patience_s
        self._changed = threading.Condition()
        self._closed = False
        # When the first failure after the last commit was, and how long to wait after the next one.
        self._failing_since_s: float | None = None
        self._wait_s = dataflow_sink_retry_s
        self._thread: threading.Thread | None = None

    def __call__(self, rows: pa.RecordBatch) -> None:
        """Raise InvalidQuery. Drivers that support committing sinks call `put` instead."""
        raise InvalidQuery(f"{self.name} commits rows with their numbers, which the peer ring lacks: use SGuard")

    def begin(self, context: SinkContext) -> int:
        """Connect, and return the number of the last committed row. Raises StartupError."""
        if self._thread is not None:
            raise StartupError(f"{self.name} is already in use: make another one for another run")
        self._context = context
        until_s = time.monotonic() + min(self._patience_s, dataflow_sink_begin_s)
        while True:
            try:
                number = self._committer.open(context.opening)
                break
            except (PeerUnreachable, PeerTimeout) as error:
                if time.monotonic() > until_s:
                    raise StartupError(error.message) from error
                time.sleep(dataflow_sink_retry_s)
        self._progress = SinkProgress(number, self._rule)
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()
        return number

    def put(self, first: int, rows: pa.RecordBatch) -> None:
        with self._changed:
            self._progress.put(first, rows)
            self._changed.notify_all()

    def flush(self) -> None:
        with self._changed:
            self._progress.flush()
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    # -- on the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closed:
                try:
                    self._step()
                except (PeerUnreachable, PeerTimeout) as error:
                    self._open_again(error)
        except BaseException as error:  # any error of the client library stops the query
            self._context.failed(error)
        finally:
            try:
                self._committer.close()
            except Exception as error:  # nothing depends on it
                log.info("%s was not closed: %s", self.name, error)

    def _step(self) -> None:
        """Prepare the next rows or commit. If neither can be done yet, wait."""
        with self._changed:
            now_s = time.monotonic()
            batch = self._progress.prepare(now_s)
            due_s = self._progress.due_s(now_s)
            if batch is None and due_s != 0.0:
                self._changed.wait(due_s)
                return
        if batch is not None:
            self._committer.append(batch.first, batch.rows)
            return
        number = self._progress.prepared
        self._context.fenced(lambda: self._committer.commit(number))
        self._failing_since_s = None
        with self._changed:
            self._progress.commit()
        self._context.committed(number)

    def _open_again(self, failure: PeerUnreachable | PeerTimeout) -> None:
        """Connect again, and learn which rows were committed. Raises QueryFailed when patience is over."""
        first = self._failing_since_s is None
        if self._failing_since_s is None:
            self._failing_since_s, self._wait_s = time.monotonic(), dataflow_sink_retry_s
        numbers: list[int] = []

        def opened() -> None:
            numbers.append(self._committer.open(replace(self._context.opening, fresh=False)))

        while not self._closed:
            log.warning("%s begins again: %s", self.name, failure.message)
            if not first and not self._wait(failure, time.monotonic() - self._failing_since_s):
                return
            first = False
            try:
                # Another driver that has taken over must not be fenced by this one.
                self._context.fenced(opened)
                break
            except (PeerUnreachable, PeerTimeout) as error:
                failure = error
        for number in numbers:
            if number > self._progress.committed:
                self._failing_since_s = None
            with self._changed:
                self._progress.restart(number)
            self._context.committed(number)

    def _wait(self, failure: PeerUnreachable | PeerTimeout, failing_s: float) -> bool:
        """Wait before the next attempt. Returns False if the sink is closed. Raises QueryFailed."""
        if failing_s > self._patience_s:
            raise QueryFailed(
                f"{self.name} has taken no rows for {failing_s:.0f} s: {failure.message}; rows up to "
                f"{self._progress.committed} are there: resume the query when it is back"
            ) from failure
        with self._changed:
            self._changed.wait_for(lambda: self._closed, self._wait_s)
        self._wait_s = min(2 * self._wait_s, dataflow_sink_retry_s_max)
        return not self._closed
