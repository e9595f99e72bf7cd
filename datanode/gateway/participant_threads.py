"""The threads on which a gateway runs its participants: for long uploads, for quick steps, and a shared one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from peacefs.runtime import effects as fx
from peacefs.runtime.thread_driver import ThreadDriver
from peacefs.runtime.tracing import is_tracing, observed_here

T = TypeVar("T")
#: Starts a participant and returns at once. Later calls back, on any thread, with the participant's error or None.
Begin = Callable[[fx.Steps[None], Callable[[Exception | None], None]], None]


class ParticipantThreads:
    """Runs participants for a gateway. Belongs to its event loop."""

    def __init__(self, driver: ThreadDriver, begin: Begin, *, long_max: int, quick_max: int) -> None:
        """`begin` starts a participant that does little work, on a shared thread."""
        self._driver = driver
        self._begin = begin
        self._quick_max = quick_max
        #: The number of participants on the shared thread.
        self._begun = 0
        self._long = ThreadPoolExecutor(long_max, thread_name_prefix="gateway-long")
        self._quick = ThreadPoolExecutor(quick_max, thread_name_prefix="gateway-quick")

    def close(self) -> None:
        """Accept no more work. What is under way ends by its own deadlines."""
        self._long.shutdown(wait=False, cancel_futures=True)
        self._quick.shutdown(wait=False, cancel_futures=True)

    def run_long(self, steps: fx.Steps[T]) -> asyncio.Future[T]:
        """Run a participant that may take as long as the client keeps sending."""
        return self._run(self._long, steps)

    def run_quick(self, steps: fx.Steps[T]) -> asyncio.Future[T]:
        """Run a participant that ends soon."""
        return self._run(self._quick, steps)

    def run_shared(self, steps: fx.Steps[None]) -> asyncio.Future[None]:
        """Run a small participant on the shared thread; if that has too many, on a quick thread."""
        if self._begun >= self._quick_max:
            return self.run_quick(steps)
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def hear(fault: Exception | None) -> None:
            self._begun -= 1
            if ended.done():
                return
            if fault is None:
                ended.set_result(None)
            else:
                ended.set_exception(fault)

        def end(fault: Exception | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the service has ended
                loop.call_soon_threadsafe(hear, fault)

        self._begin(observed_here(steps) if is_tracing() else steps, end)
        self._begun += 1
        return ended

    def _run(self, pool: ThreadPoolExecutor, steps: fx.Steps[T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(pool, copy_context().run, self._driver.run, steps)
