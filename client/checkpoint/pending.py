"""A checkpoint that was submitted: to be waited for, or given up."""

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
    """A checkpoint that is there. `pruned` are the sequences that were deleted for it.

    `prune_fault` is why not all of those were, which are tried again with the next.
    """

    path: str
    length: int
    pruned: tuple[int, ...] = ()
    prune_fault: PeacefsError | None = None


class PendingCheckpoint:
    """Thread-safe."""

    def __init__(self, path: str, attempt: CheckpointAttempt, publish: Callable[[], Published]) -> None:
        """`publish` runs the attempt, on a thread of its own."""
        self.path = path
        self._attempt = attempt
        self._publish = publish
        self._outcome: Future[Published] = Future()
        threading.Thread(
            target=copy_context().run, args=(self._run,), name="peacefs-checkpoint", daemon=True
        ).start()

    @property
    def expected_start_s(self) -> float:
        """In how many seconds its next chunk may expect its turn, as the coordinator said last."""
        return self._attempt.expected_start_s

    @property
    def asked_s(self) -> float | None:
        """Since when it waits, by the monotonic clock; None while it has asked for nothing."""
        return self._attempt.asked_s

    @property
    def done(self) -> bool:
        return self._outcome.done()

    def result(self, timeout_s: float | None = None) -> Published:
        """Waits until it is published. Raises why it is not, and TimeoutError."""
        return self._outcome.result(timeout_s)

    def cancel(self) -> bool:
        """Gives it up; False: it was published before. Nothing of it goes on when this returns."""
        self._attempt.give_up(CheckpointCancelled(f"{self.path} was cancelled"))
        return self._outcome.exception() is not None

    def _run(self) -> None:
        try:
            published = self._publish()
        except BaseException as error:
            self._outcome.set_exception(error)
        else:
            self._outcome.set_result(published)
