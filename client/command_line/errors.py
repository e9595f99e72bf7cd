"""Reports errors as `hdfs dfs` does: one line on stderr for each path, and exit status 1 at the end."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from peacefs.protocol.errors import (
    AccessDenied,
    BadRequest,
    ChunkUnavailable,
    FileAlreadyExists,
    FileNotFound,
    LeaseError,
    ParentNotDirectory,
    PathError,
    PathIsDirectory,
    PathIsNotEmptyDirectory,
    PeacefsError,
    QuotaExceeded,
    RenameRefused,
)

from .presentation import printable
from .standard_streams import STANDARD_INPUT, STANDARD_OUTPUT

#: Errors of a single path, after which a command continues with the next path. Other errors end the command.
_OF_ONE_PATH = (
    PathError,
    BadRequest,
    RenameRefused,
    QuotaExceeded,
    LeaseError,
    AccessDenied,
    ChunkUnavailable,
)

_REASONS: dict[type[PeacefsError], str] = {
    FileNotFound: "No such file or directory",
    FileAlreadyExists: "File exists",
    PathIsDirectory: "Is a directory",
    ParentNotDirectory: "Not a directory",
    PathIsNotEmptyDirectory: "Directory is not empty",
}


def report_error(command: str, what: str) -> None:
    """Write `peacefs: <command>: <what>` to stderr."""
    one_line = printable(" ".join(what.split()))
    sys.stderr.write(f"peacefs: {command}: {one_line}\n" if command else f"peacefs: {one_line}\n")


def report_system_error(command: str, error: OSError) -> None:
    """Write an error of the operating system to stderr, with the file that it concerns."""
    where = f"{printable(str(error.filename))}: " if error.filename is not None else ""
    report_error(command, f"{where}{error.strerror or error}")


class CommandErrors:
    """Reports the errors of one command, and remembers whether there were any."""

    def __init__(self, command: str) -> None:
        self._command = command
        self.any = False

    def say(self, place: str, reason: str) -> None:
        self.any = True
        report_error(self._command, f"`{printable(place)}': {reason}")

    @contextlib.contextmanager
    def about(self, place: str) -> Iterator[None]:
        """Run the block, and report its error for this path or local file. Then continue with the command."""
        try:
            yield
        except _OF_ONE_PATH as error:
            self.say(place, _REASONS.get(type(error), error.message))
        except OSError as error:
            if error.filename in (STANDARD_INPUT, STANDARD_OUTPUT):
                # An error of a standard stream concerns no path, and must not be reported for each path.
                raise
            self.say(place if error.filename is None else str(error.filename), error.strerror or str(error))
