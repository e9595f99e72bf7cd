"""Files and directories that only the user who runs a service may open, whatever the umask is.

New ones are made so. One that an earlier version, or somebody else, has made is mended once, with one line in the
log.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from peacefs.protocol.errors import StartupError

log = logging.getLogger("peacefs.files")

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
_OF_OTHERS = 0o077
_CANNOT_BE_MENDED = {errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOSYS}


def make_directory(path: Path) -> None:
    """Make a private directory unless it is there; its parents get what the umask gives. Raises OSError."""
    path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)


def make_directories(path: str) -> None:
    """Make a private directory, and private parents where they are missing. Raises OSError."""
    try:
        os.mkdir(path, DIRECTORY_MODE)  # noqa: PTH102
    except FileExistsError:
        if not os.path.isdir(path):  # noqa: PTH112
            raise
    except FileNotFoundError:
        make_directories(os.path.dirname(path))  # noqa: PTH120
        make_directories(path)


def create_file(path: Path) -> None:
    """Make an empty private file in place of one that is there. Raises OSError."""
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))


def opener(path: str, flags: int) -> int:
    """Open a file as `open` does, for its `opener` argument; a file that is made is private."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def mend(directory: Path, choose: Callable[[Path], bool] = lambda entry: True) -> None:
    """Take the directory, and those of its entries that `choose` takes, from all users but their owners.

    Only what belongs to this user can be mended; a directory on a read-only disk is left with a warning. Raises
    StartupError for what stays open, OSError when the directory cannot be read.
    """
    before = stat.S_IMODE(directory.stat().st_mode)
    if before & stat.S_ISVTX and before & _OF_OTHERS and _holds_more(directory, choose):
        raise StartupError(
            f"{directory} is shared by all users of this machine (mode {before:04o}): choose a directory in it"
        )
    opened = [path for path in _entries(directory, choose) if _close_to_others(path)]
    if opened:
        log.warning(
            "%s (mode %04o) and what lies in it were open to other users of this machine, in %d places: only "
            "their owner can open them from now on",
            directory,
            before,
            len(opened),
        )


def _holds_more(directory: Path, choose: Callable[[Path], bool]) -> bool:
    return any(not choose(entry) and entry.name != "lost+found" for entry in directory.iterdir())


def _entries(directory: Path, choose: Callable[[Path], bool]) -> Iterable[Path]:
    # The directory first: from then on nobody else reaches what lies in it.
    yield directory
    for entry in sorted(directory.iterdir()):
        if choose(entry) and not entry.is_symlink() and (entry.is_file() or entry.is_dir()):
            yield entry


def _close_to_others(path: Path) -> bool:
    """Return whether other users could open it before. Raises StartupError when they still can."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & _OF_OTHERS:
        return False
    why = "its file system keeps no modes"
    try:
        path.chmod(mode & ~_OF_OTHERS)
    except OSError as error:
        if error.errno == errno.EROFS:
            log.warning("%s is open to other users of this machine, and its disk is read-only", path)
            return False
        if error.errno not in _CANNOT_BE_MENDED:
            raise
        why = error.strerror or str(error)
    if stat.S_IMODE(path.stat().st_mode) & _OF_OTHERS:
        raise StartupError(
            f"{path} is open to other users of this machine (mode {mode:04o}) and cannot be closed to them "
            f"({why}). Give it to the user who runs this service (chown), or choose another directory"
        )
    return True
