"""Applies the log to the image of a directory, by a second process if the image lacks many entries.

Until then, only the log contains the changes, and a start reads them from there.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import apsw

from peacefs.coordinator.metadata.image_port import ImageKeeper
from peacefs.coordinator.metadata.log.entry import Content
from peacefs.coordinator.metadata.log.segments import LogDamaged
from peacefs.protocol.errors import ServiceUnready

from .connections import (
    DamagedPage,
    connect_read_only,
    damage_found,
    damage_of,
    is_fault_of_the_store,
    is_want_of_room,
)
from .image import ImageWriter, entries_behind
from .image_process import FAULT, IMAGED, NUMBER, SAID, SYNCED
from .page_sums import PageScrub
from .statement_entries import apply_statements
from .store_place import lock_of_image_process

log = logging.getLogger("peacefs.coordinator")

# Number of entries that the image may lack before a process is started. A start applies so many entries quickly.
image_entries_behind_max: Final = 500
# Pause before a dead process is restarted, and the number of deaths without progress that count as a fault.
image_restart_pause_s: Final = 1.0
image_deaths_max: Final = 5
# Time limits of callers that wait for the image.
image_wait_s: Final = 60.0
image_close_wait_s: Final = 20.0


class FileImage(ImageKeeper):
    """Runs at most one image process. Without one, `catch_up` applies entries in this process."""

    def __init__(self, store: Path, database: int, number: int) -> None:
        """`database` is a descriptor of the image's file; `number` is the last entry in the image."""
        self._store = store
        self._scrub = PageScrub(store, database)
        self._durable = self._imaged_number = self._synced = number
        self._told_synced = number
        self._imaged: Callable[[int], None] = lambda number: None
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = b""
        self._deaths = 0
        self._died_s = float("-inf")

    def begin(self, imaged: Callable[[int], None]) -> None:
        self._imaged = imaged

    def durable(self, number: int, chain: int, content: Content) -> None:
        self._durable = number
        if self._process is not None:
            self._tell()
        elif number - self._imaged_number > image_entries_behind_max and self.fault is None:
            self._start()

    # -- the process ---------------------------------------------------------------------------------

    def _start(self) -> None:
        if time.monotonic() - self._died_s < image_restart_pause_s:
            return
        module = "peacefs.coordinator.metadata.sqlite.image_process"
        lock = lock_of_image_process(self._store)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(self._store)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=(lock,),
            )
        finally:
            os.close(lock)
        self._heard = b""
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self._tell()

    def _tell(self) -> None:
        pipe = None if self._process is None else self._process.stdin
        assert pipe is not None, "there is no process to tell"
        try:
            os.write(pipe.fileno(), NUMBER.pack(self._durable))
        except BlockingIOError:
            # The process is busy. `tend` sends the number again.
            return
        except BrokenPipeError:
            self._died()

    def _listen(self, wait_s: float) -> None:
        """Read the messages of the process."""
        process = self._process
        if process is None:
            return
        assert process.stdout is not None
        while select.select([process.stdout], [], [], wait_s)[0]:
            data = os.read(process.stdout.fileno(), 1 << 16)
            if not data:
                self._died()
                return
            self._heard += data
            wait_s = 0.0
        while len(self._heard) >= SAID.size:
            word, number = SAID.unpack_from(self._heard)
            self._heard = self._heard[SAID.size :]
            if word == IMAGED:
                self._deaths = 0
                self._imaged_number = max(self._imaged_number, number)
                self._imaged(number)
            elif word == SYNCED:
                self._synced = number
            elif word == FAULT:
                self.fault = DamagedPage(self._heard[:number].decode(errors="replace"))
                self._heard = b""

    def _died(self) -> None:
        process, self._process = self._process, None
        assert process is not None
        _reap(process)
        self._died_s = time.monotonic()
        self._deaths += 1
        if self.fault is None:
            log.error("the process that writes %s has ended with status %s", self._store, process.returncode)
        if self._deaths >= image_deaths_max and self.fault is None:
            self.fault = ServiceUnready(f"the process that writes {self._store} has ended {self._deaths} times")

    # -- the port ------------------------------------------------------------------------------------

    def catch_up(self) -> None:
        deadline_s = time.monotonic() + image_wait_s
        while self._process is not None and self._imaged_number < self._durable:
            self._tell()
            self._listen(0.05)
            self._refuse_after_fault()
            if time.monotonic() >= deadline_s:
                raise ServiceUnready(f"{self._store} is not up to date after {image_wait_s:g} s")
        self._refuse_after_fault()
        if self._imaged_number < self._durable:
            self._apply_here()

    def _refuse_after_fault(self) -> None:
        if self.fault is not None:
            raise self.fault

    def _apply_here(self) -> None:
        with contextlib.closing(ImageWriter.open(self._store)) as writer:
            self._apply_with(writer)

    def _apply_with(self, writer: ImageWriter) -> None:
        try:
            writer.apply(list(entries_behind(writer.connection, self._store)))
        except (apsw.Error, DamagedPage, LogDamaged, OSError) as error:
            if not is_want_of_room(error):
                self.fault = error
            raise
        self._imaged_number = max(self._imaged_number, writer.number)
        self._imaged(self._imaged_number)

    def imaged(self) -> apsw.Connection:
        self.catch_up()
        return connect_read_only(self._store)

    def tend(self, *, idle: bool) -> int | None:
        self._listen(0.0)
        self.fault = self.fault or damage_of(self._store)
        self._refuse_after_fault()
        if self._process is not None:
            if self._imaged_number < self._durable:
                self._tell()
        elif self._durable - self._imaged_number > image_entries_behind_max:
            self._start()
        if self._synced > self._told_synced:
            self._told_synced = self._synced
            return self._synced
        return None

    def scrub(self, pages: int) -> Exception | None:
        if self._process is not None:
            # A running process scrubs the image itself. A page that it is writing could look damaged from here.
            return None
        return damage_found(self._scrub, pages, is_log_copied=False)

    def apply_statements(self, content: bytes, journal_number: int, chunks: set[int], tables: set[str]) -> None:
        self._stop()
        with contextlib.closing(ImageWriter.open(self._store)) as writer:
            self._apply_with(writer)
            apply_statements(writer, content, journal_number, chunks, tables)

    def is_fault(self, error: Exception) -> bool:
        return is_fault_of_the_store(error)

    def _stop(self) -> None:
        """End the process. Entries that it has not applied remain in the log."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            _reap(process)

    def finish(self) -> None:
        self._stop()
        if self.fault is None and self._imaged_number < self._durable:
            with contextlib.suppress(apsw.Error, DamagedPage, LogDamaged, OSError):
                self._apply_here()

    def close(self) -> None:
        self._scrub.close()


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(image_close_wait_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
