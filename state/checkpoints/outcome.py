"""A checkpoint that is being written, for who began it, and what came of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from peacefs.protocol.errors import CheckpointCancelled
from peacefs.state.pages.snapshot import PageSnapshot

from .store import PendingWrite


@dataclass(frozen=True)
class PublishedPages:
    """A checkpoint that is there. `pause_s` is how long preparing it took; `removed` are older ones that went."""

    sequence: int
    pages_written: int
    pages_referred: int
    bytes_written: int
    pause_s: float
    removed: tuple[int, ...]


@dataclass(frozen=True)
class PreparedCheckpoint:
    """The pages of one moment, read-only until they are written or the checkpoint is cancelled."""

    snapshot: PageSnapshot
    pause_s: float


class RunningCheckpoint:
    """Thread-safe but for `result`, which is for the thread that the pages belong to."""

    def __init__(self, sequence: int, pause_s: float, settle: Callable[[], None]) -> None:
        self.sequence = sequence
        #: The seconds for which pages had to stand still.
        self.pause_s = pause_s
        self._settle = settle
        self._outcome: Future[PublishedPages] = Future()
        self._lock = threading.Lock()
        self._pending: PendingWrite | None = None
        self._cancelled = False

    @property
    def done(self) -> bool:
        return self._outcome.done()

    @property
    def expected_start_s(self) -> float:
        """In how many seconds what comes next may expect its turn."""
        with self._lock:
            return self._pending.expected_start_s if self._pending is not None else 0.0

    def cancel(self) -> None:
        """Give it up, unless it is published at this moment; `result` tells."""
        with self._lock:
            self._cancelled = True
            pending = self._pending
        if pending is not None:
            pending.cancel()

    def result(self, timeout_s: float | None = None) -> PublishedPages:
        """Wait for it. Raises why it does not exist, and TimeoutError."""
        try:
            return self._outcome.result(timeout_s)
        finally:
            self._settle()

    # -- for the thread that writes ------------------------------------------------------------------

    def attach(self, pending: PendingWrite) -> None:
        """Have `cancel` reach what is being written. Raises CheckpointCancelled when it came before."""
        with self._lock:
            self._pending = pending
            cancelled = self._cancelled
        if cancelled and pending.cancel():
            raise CheckpointCancelled(f"checkpoint {self.sequence} was cancelled")

    def succeed(self, published: PublishedPages) -> None:
        self._outcome.set_result(published)

    def fail(self, error: BaseException) -> None:
        self._outcome.set_exception(error)
