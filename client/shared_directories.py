"""The directories that several users of one cluster need, as HDFS clusters have them. For superusers to make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from peacefs.protocol.errors import FileNotFound
from peacefs.protocol.values.trash import home_of

from .filesystem import PeaceFileSystem

#: Everybody makes directories of his own in these, and removes nobody else's.
_SHARED: Final = ("/tmp", "/checkpoints")
_SHARED_PERMISSION: Final = 0o1777


def make_shared_directories(files: PeaceFileSystem, users: Iterable[str]) -> Iterator[str]:
    """Make what is missing of /tmp, /checkpoints and the users' homes; yield the path of each that was made.

    What is there stays as it is. Raises AccessDenied, and other classes of `peacefs.protocol.errors`.
    """
    for path in _SHARED:
        if not files.exists(path):
            files.mkdirs(path, _SHARED_PERMISSION)
            yield path
    for user in users:
        home = home_of(user)
        owner = _owner(files, home)
        if owner is None:
            files.mkdirs(home)
        elif user == files.user or owner != files.user:
            continue
        # Also where an earlier run made the home and ended before this.
        if user != files.user:
            files.set_owner(home, user, user)
        yield home


def _owner(files: PeaceFileSystem, path: str) -> str | None:
    try:
        return files.status(path).owner
    except FileNotFound:
        return None
