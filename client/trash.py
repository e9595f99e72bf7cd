"""Moves files to the trash instead of deleting them, as Hadoop's `TrashPolicyDefault`, and empties the trash."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable
from typing import Final, Protocol

from peacefs.protocol.errors import (
    FileAlreadyExists,
    FileNotFound,
    ParentNotDirectory,
    PeacefsError,
    RenameRefused,
)
from peacefs.protocol.values.trash import (
    CURRENT_NAME,
    TRASH_PERMISSION,
    checkpoint_name,
    checkpoint_time_ms,
    has_expired,
    home_of,
    trash_of,
)

from .control.values import FileStatus

#: A move is retried: between two calls the trash may become a checkpoint, or the name may be taken.
_ATTEMPTS: Final = 5


class TrashedNames(Protocol):
    """The file system operations that the trash needs."""

    @property
    def user(self) -> str: ...

    def exists(self, path: str) -> bool: ...

    def status(self, path: str) -> FileStatus: ...

    def list(self, path: str) -> list[FileStatus]: ...

    def mkdirs(self, path: str, permission: int = ...) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def delete(self, path: str, *, recursive: bool = ...) -> bool: ...


class ClientTrash:
    """The trash of one user. Raises classes of `peacefs.protocol.errors`."""

    def __init__(self, names: TrashedNames, clock: Callable[[], float] = time.time) -> None:
        self._names = names
        self._clock = clock
        self._root = trash_of(names.user)
        self._current = f"{self._root}/{CURRENT_NAME}"

    def move(self, path: str) -> str | None:
        """Move a path to the trash. Return its new path, or None, with no change, if it is in the trash already.

        Raises FileNotFound, and RenameRefused for a directory that contains the trash.
        """
        self._names.status(path)
        if path == self._root or path.startswith(f"{self._root}/"):
            return None
        if self._root.startswith(f"{path.rstrip('/')}/"):
            raise RenameRefused(f'Cannot move "{path}" to the trash, as it contains the trash')
        for attempts_left in reversed(range(_ATTEMPTS)):
            goal = self._free_place(path)
            try:
                if not self._names.exists(self._root):
                    # Parents of the trash are made with the default permission, since others may use them too.
                    self._names.mkdirs(home_of(self._names.user))
                self._names.mkdirs(posixpath.dirname(goal), TRASH_PERMISSION)
                self._names.rename(path, goal)
            except (FileAlreadyExists, FileNotFound, ParentNotDirectory):
                if not attempts_left:
                    raise
                self._names.status(path)
            else:
                return goal
        raise AssertionError("the last attempt returns or raises")

    def _free_place(self, path: str) -> str:
        """Return a free path below `Current`. If the name is taken, append the time to it."""
        now_ms = int(self._clock() * 1000)
        place = self._current
        components = [component for component in path.split("/") if component]
        for component in components[:-1]:
            place = f"{place}/{component}"
            if self._is_file(place):
                place += str(now_ms)
        place = wanted = f"{place}/{components[-1]}"
        while self._names.exists(place):
            place = f"{wanted}{now_ms}"
            now_ms += 1
        return place

    def _is_file(self, path: str) -> bool:
        try:
            return not self._names.status(path).is_directory
        except PeacefsError:
            return False

    def expunge(self, kept_minutes: int, *, immediate: bool = False) -> list[str]:
        """Delete checkpoints older than `kept_minutes`, or all with `immediate`; return the names deleted.

        The present contents of the trash become a checkpoint first.
        """
        now_ms = int(self._clock() * 1000)
        try:
            names = [entry.name for entry in self._names.list(self._root) if entry.is_directory]
        except FileNotFound:
            return []
        if CURRENT_NAME in names and self._names.list(self._current):
            made = self._close(names, now_ms)
            if immediate:
                names.append(made)
        old = [
            name
            for name in names
            if (checkpoint_time_ms(name) is not None if immediate else has_expired(name, now_ms, kept_minutes))
        ]
        for name in old:
            self._names.delete(f"{self._root}/{name}", recursive=True)
        return old

    def _close(self, taken: list[str], now_ms: int) -> str:
        name = base = checkpoint_name(now_ms)
        number = 0
        while name in taken:
            number += 1
            name = f"{base}-{number}"
        self._names.rename(self._current, f"{self._root}/{name}")
        return name
