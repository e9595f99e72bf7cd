"""Lets go by time of what lies idle, also when nobody asks for it any more.

Its thread is there only while something lies idle, so that whoever forgets to close what it watches over leaves
nothing running for long. Knows nothing of connections.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from .worker_thread import WorkerThread


class IdleReaper:
    """`reap` is called with the time, at once and then whenever it is due: it lets go of what has lain idle for
    too long and gives when it is to be called again, None if nothing is left.

    Times are monotonic seconds. Thread-safe.
    """

    def __init__(
        self, reap: Callable[[float], float | None], name: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._reap = reap
        self._name = name
        self._clock = clock
        # No condition: who watches or stops may be interrupted by Ctrl-C, as `worker_thread` has it.
        self._lock = threading.Lock()
        self._stop_asked: SimpleQueue[None] = SimpleQueue()
        self._thread: WorkerThread | None = None
        self._asked = False
        self._stopped = False

    def watch(self) -> None:
        """Something lies idle now. Cheap while something else does."""
        # Connections that lay idle before are due before this.
        if self._asked:
            return
        with self._lock:
            self._asked = True
            if self._thread is None and not self._stopped:
                thread = WorkerThread(self._run, self._name)
                thread.start()
                self._thread = thread

    def stop(self) -> None:
        """Reaps no more; `watch` does nothing from now on."""
        with self._lock:
            self._stopped = True
            thread = self._thread
        self._stop_asked.put(None)
        if thread is not None and not thread.is_current:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                # Connections that become idle from here on are seen by the next check.
                self._asked = False
            due_s = self._reap(self._clock())
            with self._lock:
                if self._stopped or (due_s is None and not self._asked):
                    self._thread = None
                    break
            if due_s is not None:
                with contextlib.suppress(Empty):
                    self._stop_asked.get(timeout=max(0.0, due_s - self._clock()))
        if self._stopped:
            # Another thread may be there to stop, after a start that was interrupted.
            self._stop_asked.put(None)
