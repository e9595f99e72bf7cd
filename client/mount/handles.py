"""Open files of programs, and who makes a request."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from .open_file import OpenFile
from .readers import VersionReader

#: The flags of an open that may change the file.
WRITING: Final = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True)
class Caller:
    """Who makes a request: a thread of a local process, and its user and group."""

    thread: int
    uid: int
    gid: int


class Handle:
    """An open file of one program. Reads the version that it opened until a local process changes the file."""

    def __init__(self, file: OpenFile, flags: int) -> None:
        self.file = file
        # To make a file is to change it, even if it is opened for reading.
        self.is_writing = bool(flags & (WRITING | os.O_CREAT))
        self.is_appending = bool(flags & os.O_APPEND)
        #: The processes that opened it, or wrote through it.
        self.writers: set[int] = set()
        self.reader: VersionReader | None = None
        self.generation = -1
