"""Files and directories that only the user who runs a service may open, independent of the umask.

New ones are created with these modes. For existing ones, `mend` removes the permissions of other users and logs
it.
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
    """Make a private directory unless it exists; parents get the default mode. Raises OSError."""
    path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)


def make_directories(path: str) -> None:
    """Make a private directory and its missing parents, also private, unless it exists. Raises OSError."""
    try:
        os.mkdir(path, DIRECTORY_MODE)  # noqa: PTH102
    except FileExistsError:
        if not os.path.isdir(path):  # noqa: PTH112
            raise
    except FileNotFoundError:
        make_directories(os.path.dirname(path))  # noqa: PTH120
        make_directories(path)


def create_file(path: Path) -> None:
    """Create an empty private file, replacing an existing one. Raises OSError."""
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))


def opener(path: str, flags: int) -> int:
    """Open a file, as the `opener` argument of `open`; created files are private."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def mend(directory: Path, choose: Callable[[Path], bool] = lambda entry: True) -> None:
    """Remove other users' permissions from the directory, and from the entries for which `choose` is true.

    This works only for files of this user. On a read-only disk it only logs a warning. Raises StartupError if a
    file cannot be made private, OSError if the directory cannot be read.
    """
    before = stat.S_IMODE(directory.stat().st_mode)
    if before & stat.S_ISVTX and before & _OF_OTHERS and _holds_more(directory, choose):
        raise StartupError(
            f"{directory} is shared by all users of this machine (mode {before:04o}): choose a directory in it"
        )
    opened = [path for path in _entries(directory, choose) if _close_to_others(path)]
    if opened:
        log.warning(
            "%s (mode %04o) and its contents were open to other users of this machine, in %d places: from now"
            " on only their owner can open them",
            directory,
            before,
            len(opened),
        )


def _holds_more(directory: Path, choose: Callable[[Path], bool]) -> bool:
    return any(not choose(entry) and entry.name != "lost+found" for entry in directory.iterdir())


def _entries(directory: Path, choose: Callable[[Path], bool]) -> Iterable[Path]:
    # The directory first: once it is private, other users cannot reach its entries.
    yield directory
    for entry in sorted(directory.iterdir()):
        if choose(entry) and not entry.is_symlink() and (entry.is_file() or entry.is_dir()):
            yield entry


def _close_to_others(path: Path) -> bool:
    """Make a path private; return whether others could open it. Raises StartupError if they still can."""
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
