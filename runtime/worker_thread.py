"""A thread that can be started and joined safely while Ctrl-C may interrupt the caller at any moment.

Python may raise KeyboardInterrupt within `Event.wait` and `Condition.__enter__`. Their lock then stays locked, and
the thread that sets the event waits forever. An interrupted `Thread.join` considers the thread ended. This class
waits only for bare locks, which do not have these problems.
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
        """True if the calling thread is this one."""
        return self._thread is threading.current_thread()

    def start(self) -> None:
        """Start the thread. If Ctrl-C interrupts this call, it may have started or not; `join` handles both."""
        try:
            self._thread.start()
        except RuntimeError as fault:
            # `Thread.start` waits for an Event, which raises RuntimeError when it is interrupted.
            if isinstance(fault.__context__, KeyboardInterrupt):
                raise fault.__context__ from None
            raise
        self._is_started = True

    def join(self) -> None:
        """Wait until the function has ended. If its start was interrupted, make sure that it does not run."""
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
