"""Standard streams whose errors name the stream.

Python's own streams do not. A full disk under `> file` would look like an error of the path being shown.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, BinaryIO, Final, cast

if TYPE_CHECKING:
    from typing_extensions import Buffer

STANDARD_INPUT: Final = "standard input"
STANDARD_OUTPUT: Final = "standard output"


class ReaderGone(Exception):
    """The reader of standard output has closed it, like `head` when it has enough. The command ends silently.

    Not an OSError, because those are reported.
    """


class _NamedStream(io.FileIO):
    """A file object whose descriptor stays open when the object is closed."""

    def __init__(self, descriptor: int, mode: str, called: str) -> None:
        super().__init__(descriptor, mode, closefd=False)
        self._called = called

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise ReaderGone from None
        except OSError as error:
            error.filename = self._called
            raise

    def readinto(self, buffer: Buffer, /) -> int | None:
        try:
            return super().readinto(buffer)
        except OSError as error:
            error.filename = self._called
            raise


def prepare_standard_streams() -> None:
    """Prepare the standard streams. Call once, before anything is read or written.

    Python sets a closed stream to None. Here, its use is an error; messages to a closed stderr are lost.
    """
    streams = (("stdin", os.O_WRONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))
    for descriptor, (name, wrong_way) in enumerate(streams):
        if getattr(sys, name) is None:
            # The lowest free descriptor is this one.
            opened = os.open(os.devnull, wrong_way)
            assert opened == descriptor
            setattr(sys, name, _stand_in(opened))
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = _named_output(sys.stdout)


def _stand_in(descriptor: int) -> io.TextIOWrapper:
    if descriptor == 0:
        return io.TextIOWrapper(io.BufferedReader(_NamedStream(0, "r", STANDARD_INPUT)))
    called = STANDARD_OUTPUT if descriptor == 1 else "standard error"
    return io.TextIOWrapper(io.BufferedWriter(_NamedStream(descriptor, "w", called)))


def _named_output(stdout: io.TextIOWrapper) -> io.TextIOWrapper:
    """Return a stream like Python's own, except that its errors carry a name."""
    raw = _NamedStream(stdout.fileno(), "w", STANDARD_OUTPUT)
    return io.TextIOWrapper(
        # Like Python's stream if output is unbuffered.
        cast(BinaryIO, raw) if stdout.write_through else io.BufferedWriter(raw),
        encoding=stdout.encoding,
        errors=stdout.errors,
        line_buffering=stdout.line_buffering,
        write_through=stdout.write_through,
    )
