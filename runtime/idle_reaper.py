"""Closes idle resources after some time, even if the pool that holds them is no longer used.

The reaper's thread ends when nothing has been idle for a while. So a pool that is never closed does not leave a
thread running for long.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from .worker_thread import WorkerThread

# The thread ends when nothing is idle at two checks with this pause between them. A resource that is in constant
# use is idle only for moments, and starting a thread at each of them would take longer than the use.
reaper_pause_s: Final = 1.0


class IdleReaper:
    """Calls `reap(now)` when something may have been idle for too long.

    `reap` closes what is overdue and returns the time for its next call, or None if nothing is idle. Times are
    monotonic seconds. Thread-safe.
    """

    def __init__(
        self, reap: Callable[[float], float | None], name: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._reap = reap
        self._name = name
        self._clock = clock
        # No Condition, because Ctrl-C may interrupt `watch` or `stop`: see `worker_thread`.
        self._lock = threading.Lock()
        self._stop_asked: SimpleQueue[None] = SimpleQueue()
        self._thread: WorkerThread | None = None
        self._asked = False
        self._stopped = False

    def watch(self) -> None:
        """Note that something has become idle. Cheap if something else already is."""
        # What became idle earlier is due earlier, so the running thread needs no new time.
        if self._asked:
            return
        with self._lock:
            self._asked = True
            if self._thread is None and not self._stopped:
                thread = WorkerThread(self._run, self._name)
                thread.start()
                self._thread = thread

    def stop(self) -> None:
        """Stop reaping and end the thread; later calls of `watch` do nothing."""
        with self._lock:
            self._stopped = True
            thread = self._thread
        self._stop_asked.put(None)
        if thread is not None and not thread.is_current:
            thread.join()

    def _run(self) -> None:
        found_nothing = False
        while True:
            with self._lock:
                # Connections that become idle from here on are seen by the next check.
                self._asked = False
            due_s = self._reap(self._clock())
            with self._lock:
                is_unused = due_s is None and not self._asked
                if self._stopped or (is_unused and found_nothing):
                    self._thread = None
                    break
            found_nothing = is_unused
            wait_s = reaper_pause_s if due_s is None else due_s - self._clock()
            with contextlib.suppress(Empty):
                self._stop_asked.get(timeout=max(0.0, wait_s))
        if self._stopped:
            # If a start was interrupted, a second thread may exist; let it stop, too.
            self._stop_asked.put(None)
