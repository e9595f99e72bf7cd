"""A submitted checkpoint, which can be waited for or cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass

from peacefs.protocol.errors import CheckpointCancelled, PeacefsError

from .attempt import CheckpointAttempt


@dataclass(frozen=True)
class Published:
    """A published checkpoint. `pruned` lists the older sequence numbers that were deleted.

    `prune_fault` is the error that prevented some deletions. The next checkpoint tries them again.
    """

    path: str
    length: int
    pruned: tuple[int, ...] = ()
    prune_fault: PeacefsError | None = None


class PendingCheckpoint:
    """A checkpoint that `IOService.submit` has started. Thread-safe."""

    def __init__(self, path: str, attempt: CheckpointAttempt, publish: Callable[[], Published]) -> None:
        """Start a thread that calls `publish`, which runs the attempt."""
        self.path = path
        self._attempt = attempt
        self._publish = publish
        self._outcome: Future[Published] = Future()
        threading.Thread(
            target=copy_context().run, args=(self._run,), name="peacefs-checkpoint", daemon=True
        ).start()

    @property
    def expected_start_s(self) -> float:
        """The coordinator's latest estimate of the seconds until the next chunk may be written."""
        return self._attempt.expected_start_s

    @property
    def asked_s(self) -> float | None:
        """The time when the checkpoint began to wait, by the monotonic clock; None before its first request."""
        return self._attempt.asked_s

    @property
    def done(self) -> bool:
        return self._outcome.done()

    def result(self, timeout_s: float | None = None) -> Published:
        """Wait until the checkpoint is published. Raises the error of the write, and TimeoutError."""
        return self._outcome.result(timeout_s)

    def cancel(self) -> bool:
        """Cancel the checkpoint, and wait until its threads are done. Return False if it was published before."""
        self._attempt.give_up(CheckpointCancelled(f"{self.path} was cancelled"))
        return self._outcome.exception() is not None

    def _run(self) -> None:
        try:
            published = self._publish()
        except BaseException as error:
            self._outcome.set_exception(error)
        else:
            self._outcome.set_result(published)
