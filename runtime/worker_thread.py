"""A thread that Ctrl-C leaves in good order, at whatever moment it interrupts who starts it or waits for it.

Python raises KeyboardInterrupt between any two steps of the main thread, also within `Event.wait` and
`Condition.__enter__`: their lock then stays taken, and whoever sets the event waits for ever. An interrupted
`Thread.join` takes the thread for ended. What waits here waits for a bare lock, which has no such moments.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class WorkerThread:
    """Runs a function once, on a daemon thread."""

    def __init__(self, run: Callable[[], None], name: str) -> None:
        self._run = run
        self._thread = threading.Thread(target=self._begin, name=name, daemon=True)
        self._is_started = self._is_called_off = False
        self._running, self._until_ended = threading.Lock(), threading.Lock()
        self._until_ended.acquire()

    @property
    def is_current(self) -> bool:
        """Return whether this is the thread that asks."""
        return self._thread is threading.current_thread()

    def start(self) -> None:
        """Have it begin. One that Ctrl-C interrupts may have begun or not; then `join` sees to it."""
        try:
            self._thread.start()
        except RuntimeError as fault:
            # `Thread.start` waits by an event, which complains of its lock when it is interrupted.
            if isinstance(fault.__context__, KeyboardInterrupt):
                raise fault.__context__ from None
            raise
        self._is_started = True

    def join(self) -> None:
        """Wait until the function has ended. One whose start was interrupted does not begin any more."""
        if self._is_started:
            with self._until_ended:
                return
        self._is_called_off = True
        with self._running:
            pass

    def _begin(self) -> None:
        try:
            with self._running:
                if not self._is_called_off:
                    self._run()
        finally:
            self._until_ended.release()
