"""A checkpoint that is being written, as its starter sees it, and its result."""

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
    """A published checkpoint. Preparing it took `pause_s`; `removed` lists removed older ones."""

    sequence: int
    pages_written: int
    pages_referred: int
    bytes_written: int
    pause_s: float
    removed: tuple[int, ...]


@dataclass(frozen=True)
class PreparedCheckpoint:
    """Pages as of one moment. They are read-only until they are written or the checkpoint is cancelled."""

    snapshot: PageSnapshot
    pause_s: float


class RunningCheckpoint:
    """A checkpoint under way. Thread-safe, except that only the pages' own thread may call `result`."""

    def __init__(self, sequence: int, pause_s: float, settle: Callable[[], None]) -> None:
        self.sequence = sequence
        #: How long the pages had to stand still, in seconds.
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
        """The expected seconds until the next part has its turn."""
        with self._lock:
            return self._pending.expected_start_s if self._pending is not None else 0.0

    def cancel(self) -> None:
        """Cancel it, unless it is being published right now; `result` tells."""
        with self._lock:
            self._cancelled = True
            pending = self._pending
        if pending is not None:
            pending.cancel()

    def result(self, timeout_s: float | None = None) -> PublishedPages:
        """Wait for the outcome. Raises the reason if it failed, or TimeoutError."""
        try:
            return self._outcome.result(timeout_s)
        finally:
            self._settle()

    # -- for the thread that writes ------------------------------------------------------------------

    def attach(self, pending: PendingWrite) -> None:
        """Let `cancel` reach the write. Raises CheckpointCancelled if it was cancelled before."""
        with self._lock:
            self._pending = pending
            cancelled = self._cancelled
        if cancelled and pending.cancel():
            raise CheckpointCancelled(f"checkpoint {self.sequence} was cancelled")

    def succeed(self, published: PublishedPages) -> None:
        self._outcome.set_result(published)

    def fail(self, error: BaseException) -> None:
        self._outcome.set_exception(error)
