"""Open files of programs, and the callers of requests."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from .open_file import OpenFile
from .readers import VersionReader

#: The open flags that permit writing.
WRITING: Final = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True)
class Caller:
    """The caller of a request: a thread of a local process, and its user and group."""

    thread: int
    uid: int
    gid: int


class Handle:
    """An open file of one program. Reads the version that it opened until a local process changes the file."""

    def __init__(self, file: OpenFile, flags: int) -> None:
        self.file = file
        # O_CREAT counts as writing, even if the new file is opened for reading.
        self.is_writing = bool(flags & (WRITING | os.O_CREAT))
        self.is_appending = bool(flags & os.O_APPEND)
        #: The processes that opened the file or wrote to it through this handle.
        self.writers: set[int] = set()
        self.reader: VersionReader | None = None
        self.generation = -1

    def read_through(self, fresh: VersionReader) -> None:
        """Read another version from now on. The caller holds the file's lock."""
        old, self.reader = self.reader, fresh
        if old is not None:
            old.close()

    def extend(self, known: VersionReader, longer: VersionReader) -> None:
        """Read a longer version from now on, unless another thread has replaced the known one meanwhile."""
        with self.file.lock:
            if self.reader is known:
                self.read_through(longer)
            else:
                longer.close()
