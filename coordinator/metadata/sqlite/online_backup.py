"""A backup of the metadata for whoever asks over HTTP, while the coordinator serves.

The copy is made beside the store by a thread, and has no name any more when it is sent: nothing is left of it,
however the sending ends. One at a time: each takes as much room on the disk as the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from peacefs.coordinator.limits import backup_block_bytes
from peacefs.protocol.errors import Overloaded, PeacefsError, ServiceUnready

from .backup import copy

log = logging.getLogger("peacefs.coordinator")


class Copied:
    """A copy that is ready to be sent, of `size` bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = os.fstat(file.fileno()).st_size

    async def blocks(self) -> AsyncIterator[bytes]:
        """All of it, once. Read on the loop: it was written just now and lies in memory."""
        with self._file:
            while block := self._file.read(backup_block_bytes):
                yield block


class OnlineBackup:
    """Makes copies of the store at `store`, which this process has open."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._under_way = False

    async def make(self) -> Copied:
        """Raises Overloaded while another is being made, PeacefsError when the disk cannot take it."""
        if self._under_way:
            raise Overloaded("a backup is being made already; try again")
        self._under_way = True
        given_up = threading.Event()
        try:
            return Copied(await asyncio.to_thread(self._copy, given_up))
        finally:
            given_up.set()
            self._under_way = False

    def _copy(self, given_up: threading.Event) -> BinaryIO:
        def progress(_done: int, _total: int) -> None:
            if given_up.is_set():
                raise ServiceUnready("the coordinator is stopping")

        copying = self._store.with_name(self._store.name + ".backup")
        started_s = time.monotonic()
        try:
            copy(self._store, copying, progress)
            file = copying.open("rb")
        except OSError as error:
            raise PeacefsError(f"cannot make a backup: {error.strerror or error}") from None
        finally:
            with contextlib.suppress(OSError):
                copying.unlink(missing_ok=True)
        taken_s = time.monotonic() - started_s
        log.info("a backup was made: %d bytes in %.1f s", os.fstat(file.fileno()).st_size, taken_s)
        return file
