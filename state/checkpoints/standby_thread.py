"""A thread that has begun already, for work that is handed to it in a pause, and none where time is virtual.

Whoever starts a thread waits until it has begun: two changes of the interpreter's lock, of which the second takes
as long as the new thread likes to go on with it.
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
    """Does what it is given, one after the other."""

    def put(self, work: _Work) -> None: ...

    def close(self) -> None: ...


log = logging.getLogger("peacefs.state")


class StandbyThread:
    """Does what it is given, one after the other; ends when it is closed, or nobody has this object any more."""

    def __init__(self, name: str) -> None:
        self._given: SimpleQueue[_Work | None] = SimpleQueue()
        self._thread = threading.Thread(target=_run, args=(self._given,), name=name, daemon=True)
        self._thread.start()
        weakref.finalize(self, self._given.put, None)

    def put(self, work: _Work) -> None:
        """Have it done, and return at once."""
        self._given.put(work)

    def close(self) -> None:
        """Wait until all that was given is done, and the thread has ended."""
        self._given.put(None)
        self._thread.join()


class NoThread:
    """Does what it is given before `put` returns."""

    def put(self, work: _Work) -> None:
        work()

    def close(self) -> None:
        """Nothing is left to be done."""


def _run(given: SimpleQueue[_Work | None]) -> None:
    """Hold no work that is done, and with it whoever has given it."""
    while (work := given.get()) is not None:
        try:
            work()
        except BaseException:
            log.exception("a thread of the state goes on after what it was given has failed")
        del work
