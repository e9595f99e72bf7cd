"""Load the chunks of the metadata into the core, page by page, when a coordinator starts."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from peacefs.coordinator.core import CoordinatorCore
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.namespace import operations as namespace

# Number of chunks that a starting coordinator loads per turn of the event loop.
load_chunks_per_turn: Final = 250


log = logging.getLogger("peacefs.coordinator")


class ChunkLoading:
    """Run once, as a background task."""

    def __init__(
        self,
        core: CoordinatorCore,
        reader: Reader,
        *,
        sleep: Callable[[float], Awaitable[None]],
        on_loaded: Callable[[], None],
        loading: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`on_loaded` is called when all chunks are loaded. The context `loading` is active meanwhile."""
        self._core = core
        self._reader = reader
        self._sleep = sleep
        self._on_loaded = on_loaded
        self._loading = loading

    async def run(self) -> None:
        """Load all chunks in turns, between which other tasks run."""
        after, count = 0, 0
        with self._loading():
            while page := namespace.chunk_page(self._reader, after, load_chunks_per_turn):
                self._core.load(page)
                after, count = page[-1].chunk, count + len(page)
                await self._sleep(0)
        self._core.loaded()
        self._on_loaded()
        log.info("%d chunks are known; waiting for the datanodes' reports", count)
