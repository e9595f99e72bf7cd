"""Lets go by time of what lies idle, also when nobody asks for it any more.

Its thread is there only while something lies idle, so that whoever forgets to close what it watches over leaves
nothing running for long. Knows nothing of connections.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


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
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._asked = False
        self._stopped = False

    def watch(self) -> None:
        """Something lies idle now. Cheap while something else does."""
        # Connections that lay idle before are due before this.
        if self._asked:
            return
        with self._changed:
            self._asked = True
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Reaps no more; `watch` does nothing from now on."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                # Connections that become idle from here on are seen by the next check.
                self._asked = False
            due_s = self._reap(self._clock())
            with self._changed:
                if self._stopped or (due_s is None and not self._asked):
                    self._thread = None
                    return
                if due_s is not None:
                    self._changed.wait(max(0.0, due_s - self._clock()))
