"""Keep a query running: restart it from its checkpoint when it stops, up to a limit.

It can also kill the query in the middle of a batch. It judges progress only by the checkpoint on peacefs.
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

# A query without any activity for `query_silence_s`, or without a finished batch for `query_stall_s`, is given up.
query_silence_s: Final = 90.0
query_stall_s: Final = 1800.0
query_restarts_max: Final = 4
# Attempts to kill the query in the middle of a batch.
demo_kills_max: Final = 3


_POLL_S = 0.05
_LIFE_POLL_S = 1.0
# By then the coordinator has finished a rename that the killed client had requested.
_SETTLE_S = 0.5
_REASON_CHARACTERS_MAX = 160


class QuerySupervisor:
    """Start a query, watch it, and restart it; used by the demo. Leaving the context kills the query.

    `start` starts a process of the query. `observe` receives the number of committed batches at each change,
    `said` a text about each event. Methods raise QueryFailed if the query stops more than `query_restarts_max`
    times or shows no activity (see `SignsOfLife`). On a busy machine a batch may take minutes.
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
        #: A batch that the previous process began, and that this one will run again.
        self._inherited_batch: int | None = None
        #: The reason for each restart.
        self.restarts: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()

    def kill_in_batch(self, first: int, after_s: Callable[[], float]) -> int:
        """Kill the query `after_s()` after a batch, `first` or later, has written its offsets. Return that batch.

        The query does not run afterwards: call `start_again`. If the batch was committed before the kill, restarts
        the query and tries the next batch, up to `demo_kills_max` times.
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
        """Start from the checkpoint. Raises QueryFailed after too many restarts."""
        if len(self.restarts) == query_restarts_max:
            raise QueryFailed(
                f"the query stopped more than {query_restarts_max} times, in the end because of {reason}"
            )
        self.restarts.append(reason)
        self._inherited_batch = self._last_seen[0]
        self._process = self._start()
        self._life = self._new_life()

    def run_to_end(self) -> None:
        """Return when the query has read all its input and written its result."""
        while not self._ended:
            self._look()

    def last_words(self, lines: int) -> list[str]:
        return self._process.last_words(lines)

    def _new_life(self) -> SignsOfLife:
        return SignsOfLife(time.monotonic(), silence_s=query_silence_s, longest_s=query_stall_s)

    def _await_begun(self, first: int) -> int:
        """Wait until the running process has begun a batch, `first` or later, and not committed it."""
        while not self._ended:
            begun, committed = self._look()
            if begun is not None and begun >= first and begun not in (committed, self._inherited_batch):
                return begun
        raise QueryFailed(f"the query ended before batch {first} could be hit in the middle")

    def _is_committed(self, batch: int) -> bool:
        committed = self._checkpoint.committed()
        return committed is not None and committed >= batch

    def _look(self) -> tuple[int | None, int | None]:
        """Watch once: return the latest batches begun and committed. Restart the query if it stopped."""
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
    """Return the reason that a run printed at its end, or None."""
    if not last_words or not last_words[-1].startswith(STOPPED):
        return None
    return last_words[-1].removeprefix(STOPPED)[:_REASON_CHARACTERS_MAX]
