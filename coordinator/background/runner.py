"""Runs background tasks on the event loop. If a task fails, the whole service must stop.

Otherwise the service would continue to answer although, for example, nothing is repaired any more.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

log = logging.getLogger("peacefs.coordinator")


class TaskRunner:
    """The tasks of one process, from `start` to `stop`."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self.has_failed = False

    def start(
        self, tasks: Iterable[tuple[str, Coroutine[Any, Any, None]]], on_failure: Callable[[], object]
    ) -> None:
        """Start the tasks. `on_failure` is called if a task fails."""

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (fault := task.exception()) is not None:
                log.critical("stopping: the background task %s failed", task.get_name(), exc_info=fault)
                self.has_failed = True
                on_failure()

        for name, work in tasks:
            task = asyncio.create_task(work, name=name)
            task.add_done_callback(ended)
            self._tasks.append(task)

    async def stop(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextmanager
def nothing_is_garbage() -> Iterator[None]:
    """Exclude the objects made in this context from garbage collection: they are many, and they stay."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
