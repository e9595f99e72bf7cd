"""Keeps a query going: starts it again from its checkpoint when it stops, and gives up in the end.

Also kills it, on purpose, in the middle of a batch. It judges by the checkpoint alone, as it stands on peacefs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from peacefs.protocol.errors import QueryFailed
from peacefs.service.signs_of_life import SignsOfLife
from peacefs.spark_connector.checkpoints.batches import Checkpoint

from .query_plan import STOPPED
from .query_process import QueryProcess

# A query that does nothing at all for so long is given up, and one that finishes no batch in the longer time.
query_silence_s: Final = 90.0
query_stall_s: Final = 1800.0
query_restarts_max: Final = 4
# The number of times that the demo tries to hit a batch in the middle; how long it waits for repairs of which
# there is no news, and for all of them.
demo_kills_max: Final = 3


_POLL_S = 0.05
_LIFE_POLL_S = 1.0
# A rename that the coordinator had in hand when its client was killed is done by then.
_SETTLE_S = 0.5
_REASON_CHARACTERS_MAX = 160


class QuerySupervisor:
    """A context manager: on leaving it nothing of the query runs.

    `start` starts a process of the query, `observe` is told the number of committed batches whenever it changes,
    `said` what happens to the query. All methods raise QueryFailed when the query stops more than
    `query_restarts_max` times, or gives no sign of life: see `SignsOfLife`. On a busy machine a batch may
    take minutes.
    """

    def __init__(
        self,
        start: Callable[[], QueryProcess],
        checkpoint: Checkpoint,
        observe: Callable[[int], None],
        said: Callable[[str], None],
    ) -> None:
        self._start = start
        self._checkpoint = checkpoint
        self._observe = observe
        self._said = said
        self._process = start()
        self._ended = False
        self._life = self._new_life()
        self._looked_s = 0.0
        self._last_seen: tuple[int | None, int | None] = (None, None)
        #: A batch that a process before this one began, and this one will run again.
        self._inherited_batch: int | None = None
        #: Why the query was started again, each time.
        self.restarts: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()

    def kill_in_batch(self, first: int, after_s: Callable[[], float]) -> int:
        """SIGKILL in the middle of a batch, `first` or later, `after_s()` after its offsets appeared: which batch.

        The query does not run afterwards: see `start_again`. A batch that got committed all the same does not
        count: the query goes on and the next one is tried, a bounded number of times.
        """
        for _ in range(demo_kills_max):
            batch = self._await_begun(first)
            time.sleep(after_s())
            self._process.kill()
            time.sleep(_SETTLE_S)
            if not self._is_committed(batch):
                return batch
            self.start_again(f"batch {batch} was committed before the kill")
            first = batch + 1
        raise QueryFailed(f"no batch could be hit in the middle in {demo_kills_max} attempts")

    def start_again(self, reason: str) -> None:
        """Start from the checkpoint."""
        if len(self.restarts) == query_restarts_max:
            raise QueryFailed(
                f"the query stopped more than {query_restarts_max} times, in the end because of {reason}"
            )
        self.restarts.append(reason)
        self._inherited_batch = self._last_seen[0]
        self._process = self._start()
        self._life = self._new_life()

    def run_to_end(self) -> None:
        """Returns when the query has read all its input and said its result."""
        while not self._ended:
            self._look()

    def last_words(self, lines: int) -> list[str]:
        """The last lines that the query wrote to its log."""
        return self._process.last_words(lines)

    def _new_life(self) -> SignsOfLife:
        return SignsOfLife(time.monotonic(), silence_s=query_silence_s, longest_s=query_stall_s)

    def _await_begun(self, first: int) -> int:
        """Waits until the running process has begun a batch from `first` on and not committed it."""
        while not self._ended:
            begun, committed = self._look()
            if begun is not None and begun >= first and begun not in (committed, self._inherited_batch):
                return begun
        raise QueryFailed(f"the query ended before batch {first} could be hit in the middle")

    def _is_committed(self, batch: int) -> bool:
        committed = self._checkpoint.committed()
        return committed is not None and committed >= batch

    def _look(self) -> tuple[int | None, int | None]:
        """One turn of watching: the latest batches begun and committed. Starts the query again if it stopped."""
        time.sleep(_POLL_S)
        status = self._process.status
        seen = (self._checkpoint.begun(), self._checkpoint.committed())
        now_s = time.monotonic()
        if now_s - self._looked_s >= _LIFE_POLL_S:
            self._looked_s = now_s
            self._life.seen(now_s, processor_s=self._process.processor_s, said_bytes=self._process.said_bytes)
        if seen != self._last_seen:
            self._life.progressed(now_s)
            self._last_seen = seen
            self._observe(0 if seen[1] is None else seen[1] + 1)
        if status == 0:
            self._ended = True
        elif status is not None:
            self._process.kill()
            reason = why_stopped(self._process.last_words(1)) or f"exit status {status}"
            self._said(STOPPED + reason)
            self.start_again(reason)
        elif self._life.is_given_up(now_s):
            raise QueryFailed(
                f"the query gave no sign of life for {query_silence_s:.0f} s, or finished no batch in "
                f"{query_stall_s / 60:.0f} minutes; its log says more"
            )
        return seen


def why_stopped(last_words: list[str]) -> str | None:
    """The reason that a run gave at its end, if it still could."""
    if not last_words or not last_words[-1].startswith(STOPPED):
        return None
    return last_words[-1].removeprefix(STOPPED)[:_REASON_CHARACTERS_MAX]
