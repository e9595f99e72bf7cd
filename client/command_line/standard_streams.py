"""The standard streams of a command, whose faults say which stream they are of.

Python's own say no name: a full disk under `> file` would be taken for a fault of the path that is being shown.
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
    """Whoever read standard output has gone, as `head` does when it has enough. It is no fault of a path or of the
    system (an OSError would be complained of), and ends the command in silence."""


class _NamedStream(io.FileIO):
    """A descriptor that stays open whatever becomes of this object."""

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
    """To be called once, before anything is read or written.

    Python has None for a standard stream that is closed: reading and writing it is to be a fault like others. Of
    what cannot be said on stderr nobody hears.
    """
    streams = (("stdin", os.O_WRONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))
    for descriptor, (name, wrong_way) in enumerate(streams):
        if getattr(sys, name) is None:
            # The lowest that is free: this one.
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
    """The same stream as Python has made it, but for the name in its faults."""
    raw = _NamedStream(stdout.fileno(), "w", STANDARD_OUTPUT)
    return io.TextIOWrapper(
        # As Python has it where nothing is to be buffered.
        cast(BinaryIO, raw) if stdout.write_through else io.BufferedWriter(raw),
        encoding=stdout.encoding,
        errors=stdout.errors,
        line_buffering=stdout.line_buffering,
        write_through=stdout.write_through,
    )
