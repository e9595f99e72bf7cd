"""A thread that is already running, for work that is handed to it during a pause.

Starting a thread waits until it runs, which takes two switches of the GIL. For the second one the new thread must
let go of the GIL, which may take long. Simulations with virtual time use `NoThread` instead.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

_Work = Callable[[], None]


class PageWriter(Protocol):
    """Runs the work that it is given, in order."""

    def put(self, work: _Work) -> None: ...

    def close(self) -> None: ...


log = logging.getLogger("peacefs.state")


class StandbyThread:
    """Run the work that it is given, in order. Ends when it is closed or garbage-collected."""

    def __init__(self, name: str) -> None:
        self._given: SimpleQueue[_Work | None] = SimpleQueue()
        self._thread = threading.Thread(target=_run, args=(self._given,), name=name, daemon=True)
        self._thread.start()
        weakref.finalize(self, self._given.put, None)

    def put(self, work: _Work) -> None:
        """Queue the work, and return at once."""
        self._given.put(work)

    def close(self) -> None:
        """Wait until all work is done and the thread has ended."""
        self._given.put(None)
        self._thread.join()


class NoThread:
    """Run the work before `put` returns."""

    def put(self, work: _Work) -> None:
        work()

    def close(self) -> None:
        """Do nothing: no work is left."""


def _run(given: SimpleQueue[_Work | None]) -> None:
    """Run work until None comes. Drops each finished work, since it would keep its owner alive."""
    while (work := given.get()) is not None:
        try:
            work()
        except BaseException:
            log.exception("work on a thread of the state failed; the thread continues")
        del work
