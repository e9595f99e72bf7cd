"""The process that applies entries of the log to the image, which would delay the event loop.

It reads the number of the last durable entry from stdin, and the entries from the log's files. It writes to
stdout: the last entry in the image, the last entry that is synced, and the error that stops it. It ends when stdin
ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import struct
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Final

import apsw

from peacefs.coordinator.metadata.log.segments import LogDamaged
from peacefs.protocol.errors import StartupError

from .connections import DamagedPage, is_want_of_room
from .image import ImageWriter, entries_behind
from .page_sums import PageScrub

# Pause between two transactions, which makes them large, and maximum number of entries per transaction.
image_pause_s: Final = 0.1
image_entries_per_transaction: Final = 2000
# SQLite's own log is copied after the first time without an entry, and at the second interval in any case.
image_idle_s: Final = 0.25
image_copy_interval_s: Final = 5.0
image_room_wait_s: Final = 1.0
# Number of pages whose checksums are verified per interval: 1 MiB, which takes half a millisecond.
image_scrub_pages: Final = 256
image_scrub_interval_s: Final = 1.0

#: The messages: on stdin the number of an entry, on stdout a one-letter word and a number.
NUMBER: Final = struct.Struct(">Q")
SAID: Final = struct.Struct(">cQ")
IMAGED, SYNCED, FAULT = b"i", b"s", b"f"


class ImageProcess:
    """Applies entries as they become durable, copies SQLite's log, and scrubs the image."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._writer = ImageWriter.open(store)
        self._database = os.open(store, os.O_RDONLY | os.O_CLOEXEC)
        self._scrub = PageScrub(store, self._database)
        self._durable = self._synced = self._writer.number
        self._copied_s = self._scrubbed_s = time.monotonic()

    def serve(self) -> None:
        """Serve until stdin ends. Raises apsw.Error, DamagedPage, LogDamaged, OSError."""
        self._say(IMAGED, self._writer.number)
        is_open = True
        while is_open:
            wait_s = image_pause_s if self._durable > self._writer.number else image_idle_s
            ready, _, _ = select.select([0], [], [], wait_s)
            is_idle = not ready
            if ready:
                data = os.read(0, 1 << 16)
                is_open = bool(data)
                if is_open:
                    self._durable = max(self._durable, NUMBER.unpack(data[-NUMBER.size :])[0])
                    # Wait once for more entries, which makes the transaction larger.
                    time.sleep(image_pause_s)
            if is_open or self._durable > self._writer.number:
                self._apply()
            now_s = time.monotonic()
            if self._synced < self._writer.number and (is_idle or now_s - self._copied_s >= image_copy_interval_s):
                self._copy_log(now_s)
            if now_s - self._scrubbed_s >= image_scrub_interval_s:
                self._scrubbed_s = now_s
                self._look()

    def _apply(self) -> None:
        while self._durable > self._writer.number:
            wanted = min(self._durable - self._writer.number, image_entries_per_transaction)
            entries = list(islice(entries_behind(self._writer.connection, self._store), wanted))
            if not entries:
                raise LogDamaged(f"entry {self._writer.number + 1} is durable and cannot be found")
            try:
                self._writer.apply(entries)
            except (apsw.Error, OSError) as error:
                if not is_want_of_room(error):
                    raise
                # Try again later: the log has all entries.
                time.sleep(image_room_wait_s)
                return
            self._say(IMAGED, self._writer.number)

    def _copy_log(self, now_s: float) -> None:
        self._copied_s = now_s
        try:
            if self._writer.copy_log():
                self._synced = self._writer.number
                self._say(SYNCED, self._synced)
        except apsw.Error as error:
            if not is_want_of_room(error):
                raise

    def _look(self) -> None:
        found = self._scrub.look(image_scrub_pages, is_log_copied=self._synced == self._writer.number)
        if found is not None:
            raise DamagedPage(f"the metadata is damaged: page {found} is not what was written")

    def _say(self, word: bytes, number: int) -> None:
        os.write(1, SAID.pack(word, number))

    def close(self) -> None:
        self._scrub.close()
        self._writer.close()
        os.close(self._database)


def main() -> None:
    with contextlib.suppress(KeyboardInterrupt):
        os.nice(5)
        try:
            process = ImageProcess(Path(sys.argv[1]))
            process.serve()
            process.close()
        except (apsw.Error, DamagedPage, LogDamaged, OSError, StartupError) as error:
            text = str(error).encode()
            with contextlib.suppress(OSError):
                os.write(1, SAID.pack(FAULT, len(text)) + text)


if __name__ == "__main__":
    main()
