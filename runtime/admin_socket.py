"""The path of a coordinator's local socket for administrators, for both of its sides."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

#: Below a coordinator's directory; the directory in between is its owner's alone.
_RELATIVE = Path("admin", "admin.socket")
#: `sun_path` of Linux, with the byte that ends it.
_PATH_BYTES_MAX = 107


def socket_path(directory: Path) -> Path:
    """Return where it is in a coordinator's directory."""
    return directory / _RELATIVE


def find_socket(path: Path) -> Path:
    """Return the socket that a path means: itself, or that of a coordinator's directory, or of `peacefs up`'s."""
    for candidate in (path / _RELATIVE, path / "coordinator" / _RELATIVE):
        if path.is_dir() and candidate.exists():
            return candidate
    return path


@contextlib.contextmanager
def within_limit(path: Path) -> Iterator[str]:
    """A name of the same file that the kernel takes for a socket, however long the path is."""
    text = str(path)
    if len(os.fsencode(text)) <= _PATH_BYTES_MAX:
        yield text
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
