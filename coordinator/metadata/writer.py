"""Writes entries for group commit: on the event loop while the disk is quick, otherwise in a thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

# The loop stops waiting for the disk when the mean of its last writes reaches this. It begins when more than an
# eighth of them took less than half of this.
quick_write_s: Final = 0.001
# A single write this long sends the next ones to the thread.
stalled_write_s: Final = 0.05
# Number of writes that are judged together.
writes_judged: Final = 32


class DiskSpeed:
    """Decides from the last writes whether waiting for a disk costs less than using another thread.

    Handing a write to a thread and getting the result takes longer than a sync of a quick disk, and the threads
    compete for the interpreter lock. Pure.
    """

    def __init__(self) -> None:
        self._last_s: deque[float] = deque(maxlen=writes_judged)
        self.is_quick = False

    def wrote(self, seconds: float) -> None:
        """Take in how long a write and its sync took."""
        last_s = self._last_s
        last_s.append(seconds)
        if seconds >= stalled_write_s:
            # The next writes may stall, too, so the loop must not wait for them.
            last_s.clear()
            self.is_quick = False
        elif self.is_quick:
            self.is_quick = sum(last_s) < quick_write_s * max(len(last_s), writes_judged // 4)
        elif len(last_s) == writes_judged and sorted(last_s)[writes_judged // 8] < quick_write_s / 2:
            # Measurements made in a thread include other work, so start with new ones.
            last_s.clear()
            self.is_quick = True


class Writer:
    """A `Run` that works on the event loop while the disk is quick, otherwise in a thread."""

    def __init__(self, hand_over: Callable[[Callable[[], None]], object], *, stays_off_loop: bool = False) -> None:
        """`hand_over` schedules a callback on the event loop from another thread.

        `stays_off_loop` is for work that also waits for other machines.
        """
        self._hand_over = hand_over
        self._stays_off_loop = stays_off_loop
        self._speed = DiskSpeed()
        self._work: SimpleQueue[tuple[Callable[[], None], Callable[[BaseException | None], None]] | None] = (
            SimpleQueue()
        )
        self._thread = threading.Thread(target=self._serve, name="metadata-writer", daemon=True)
        self._thread.start()

    def __call__(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        if self._speed.is_quick and not self._stays_off_loop:
            done(self._measured(work))
        else:
            self._work.put((work, done))

    def close(self) -> None:
        self._work.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            work, done = item
            error = self._measured(work)
            self._hand_over(lambda done=done, error=error: done(error))  # type: ignore[misc]

    def _measured(self, work: Callable[[], None]) -> BaseException | None:
        begun_s = time.perf_counter()
        try:
            work()
        except Exception as error:
            return error
        self._speed.wrote(time.perf_counter() - begun_s)
        return None
