"""Reads the rows of a source on a separate thread.

The user's iterator may block forever. When the query is over, nobody waits for the thread.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from typing import Final

#: Marks the end of a source. Not None, since an iterator may yield any value.
END: Final = object()


class SourceThread:
    def __init__(self, name: str, rows: Iterator[object]) -> None:
        self._rows = rows
        self._loop = asyncio.get_running_loop()
        self._wanted: queue.SimpleQueue[asyncio.Future[object] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=f"source {name}", daemon=True).start()

    async def next(self) -> object:
        """Return the iterator's next value, or END after the last. Raises whatever the iterator raises."""
        wanted: asyncio.Future[object] = self._loop.create_future()
        self._wanted.put(wanted)
        return await wanted

    def close(self) -> None:
        """End the thread as soon as the iterator returns."""
        self._wanted.put(None)

    # -- on the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            given: object = None
            failure: BaseException | None = None
            try:
                given = next(self._rows, END)
            except BaseException as error:  # whatever the user's iterator raises
                failure = error
            try:
                self._loop.call_soon_threadsafe(_tell, wanted, given, failure)
            except RuntimeError:  # the loop is closed because the query is over
                return


def _tell(wanted: asyncio.Future[object], given: object, failure: BaseException | None) -> None:
    if wanted.done():
        return
    if failure is None:
        wanted.set_result(given)
    else:
        wanted.set_exception(failure)
