"""The path of a coordinator's local socket for administrators, used by the coordinator and by its clients."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

#: Relative to a coordinator's directory. Only its owner can access `admin`.
_RELATIVE = Path("admin", "admin.socket")
#: Size of Linux's `sun_path`, without the terminating byte.
_PATH_BYTES_MAX = 107


def socket_path(directory: Path) -> Path:
    return directory / _RELATIVE


def find_socket(path: Path) -> Path:
    """Find the socket in a coordinator's directory or in that of `peacefs up`; else return `path` itself."""
    for candidate in (path / _RELATIVE, path / "coordinator" / _RELATIVE):
        if path.is_dir() and candidate.exists():
            return candidate
    return path


@contextlib.contextmanager
def within_limit(path: Path) -> Iterator[str]:
    """Return a name of the same socket that is short enough for the kernel."""
    text = str(path)
    if len(os.fsencode(text)) <= _PATH_BYTES_MAX:
        yield text
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
