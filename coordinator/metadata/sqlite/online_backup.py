"""Backups of the metadata over HTTP, while the coordinator serves.

A thread makes the copy beside the store, and unlinks it before it is sent, so that nothing remains however the
sending ends. Only one copy is made at a time, because each needs as much disk space as the store.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from peacefs.coordinator.limits import backup_block_bytes
from peacefs.protocol.errors import Overloaded, ServiceUnready

from .backup import nameless_copy

log = logging.getLogger("peacefs.coordinator")


class OnlineBackup:
    """Makes copies of the store at `store`, which this process has open."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._under_way = False

    async def make(self) -> tuple[int, AsyncIterator[bytes]]:
        """Make a copy of the store. Return its size in bytes and an iterator over its contents.

        Raises Overloaded if another copy is being made, PeacefsError if the copy cannot be written.
        """
        if self._under_way:
            raise Overloaded("a backup is being made already; try again")
        self._under_way = True
        given_up = threading.Event()
        try:
            file = await asyncio.to_thread(self._copy, given_up)
            return os.fstat(file.fileno()).st_size, _blocks(file)
        finally:
            given_up.set()
            self._under_way = False

    def _copy(self, given_up: threading.Event) -> BinaryIO:
        def progress(_done: int, _total: int) -> None:
            if given_up.is_set():
                raise ServiceUnready("the coordinator is stopping")

        started_s = time.monotonic()
        file = nameless_copy(self._store, ".backup", progress)
        taken_s = time.monotonic() - started_s
        log.info("a backup was made: %d bytes in %.1f s", os.fstat(file.fileno()).st_size, taken_s)
        return file


async def _blocks(file: BinaryIO) -> AsyncIterator[bytes]:
    """Yield the contents of a copy.

    Reading on the event loop is quick, because the file was just written and is in the page cache.
    """
    with file:
        while block := file.read(backup_block_bytes):
            yield block
