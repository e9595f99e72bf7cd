"""Creates the directories that several users of a cluster share, as in HDFS. For superusers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from peacefs.protocol.errors import FileNotFound
from peacefs.protocol.values.trash import home_of

from .filesystem import PeaceFileSystem

#: Anyone may create entries in these directories, and remove only their own (the sticky bit).
_SHARED: Final = ("/tmp", "/checkpoints")
_SHARED_PERMISSION: Final = 0o1777


def make_shared_directories(files: PeaceFileSystem, users: Iterable[str]) -> Iterator[str]:
    """Create /tmp, /checkpoints and the users' homes if they are missing; yield the path of each.

    Existing directories keep their owners, except homes that an earlier, interrupted run left to this user. Raises
    AccessDenied, and other classes of `peacefs.protocol.errors`.
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
        # Also needed if an earlier run was interrupted after creating the home.
        if user != files.user:
            files.set_owner(home, user, user)
        yield home


def _owner(files: PeaceFileSystem, path: str) -> str | None:
    try:
        return files.status(path).owner
    except FileNotFound:
        return None
