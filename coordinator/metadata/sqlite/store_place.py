"""The locks of an open store, and regular checks that its paths still lead to the same files.

The directory and the database file themselves are locked, by descriptor. So a coordinator that finds them under
another path, after a move or a mount, meets the locks, too. `check` notices a path that leads to another directory
or file than at the start, and is cheap enough for every commit. The lock file of earlier versions is locked as
well.

The process that writes the image may outlive a killed coordinator for a moment. It inherits a lock on the page
sums, and the next coordinator waits for that lock.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Final

from peacefs.protocol.errors import StartupError
from peacefs.runtime import private_files
from peacefs.runtime.file_locks import lock_within

from .page_sums import path_of as page_sums_of

# Time limit for the end of a process that writes the image, after its coordinator has ended.
image_process_end_wait_s: Final = 20.0
_CLOCK_STEP_NS = 100_000_000
_LOG_ENDINGS = ("-wal", "-shm")
Identity = tuple[int, int]


class Moved(Exception):
    """A path of the store no longer leads to the file that it led to when the coordinator started."""


class StorePlace:
    """The locks of one store, held until `close`."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._descriptors: list[int] = []
        #: A descriptor for reading the database file; -1 until it is locked.
        self.database = -1
        self._identities: dict[Path, Identity] = {}
        #: The modification time of the directory at the last full check.
        self._looked_at_ns: int | None = None

    @classmethod
    def claim(cls, store: Path) -> StorePlace:
        """Lock the directory of a store, and the store if it exists.

        Waits for the image process of a coordinator that was killed. Raises StartupError.
        """
        place = cls(store.absolute())
        try:
            place._hold(place._store.parent, os.O_RDONLY | os.O_DIRECTORY)
            place._hold(store.with_name(store.name + ".lock"), os.O_RDWR | os.O_CREAT)
            # An operator may remove the lock file, because only the lock on the directory matters.
            place._identities.pop(store.absolute().with_name(store.name + ".lock"))
            _await_image_process(store)
            if store.exists():
                place.hold_database()
        except BaseException:
            place.close()
            raise
        return place

    def hold_database(self) -> None:
        """Lock the database file. Raises StartupError.

        Call this while this process has no connection to the file, and `close` after all connections. POSIX drops
        SQLite's locks on a file when any descriptor of that file is closed.
        """
        if self._store not in self._identities:
            self.database = self._hold(self._store, os.O_RDONLY)

    def _hold(self, path: Path, flags: int) -> int:
        path = path.absolute()
        try:
            descriptor = os.open(path, flags | os.O_CLOEXEC, private_files.FILE_MODE)
        except OSError as error:
            raise StartupError(
                f"cannot open {path}: {error.strerror}. Is its directory there, and ours?"
            ) from None
        self._descriptors.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartupError(
                f"{self._store} is in use by another coordinator. Stop that one first, or give this one another "
                "directory"
            ) from None
        except OSError as error:
            raise StartupError(f"cannot lock {path}: {error.strerror}") from None
        self._identities[path] = _identity(os.fstat(descriptor))
        return descriptor

    def check(self) -> None:
        """Raise Moved if a path no longer leads to the same file as at the start.

        Checks only the directory, unless a name in it was added, removed or renamed since the last full check.
        """
        directory = self._store.parent
        changed_ns = _changed_ns(directory, self._identities[directory])
        if changed_ns is not None and changed_ns == self._looked_at_ns:
            return
        self._look_at_all()
        # The file system's clock is coarse: two changes within one step have the same time.
        is_settled = changed_ns is not None and time.time_ns() - changed_ns > _CLOCK_STEP_NS
        self._looked_at_ns = changed_ns if is_settled else None

    def _look_at_all(self) -> None:
        for path, identity in self._identities.items():
            if _look(path) != identity:
                raise Moved(f"{path} was moved, deleted or replaced while this coordinator had it open")
        if len(self._identities) < len(_LOG_ENDINGS) + 2:
            self._find_log()

    def _find_log(self) -> None:
        for ending in _LOG_ENDINGS:
            path = self._store.with_name(self._store.name + ending)
            found = _look(path)
            if found is None:
                raise Moved(f"{path} was deleted while this coordinator had it open")
            self._identities[path] = found

    def close(self) -> None:
        """Release all locks."""
        while self._descriptors:
            os.close(self._descriptors.pop())


def lock_of_image_process(store: Path) -> int:
    """Return a descriptor with a lock on the page sums, which the process that writes the image inherits."""
    descriptor = os.open(page_sums_of(store), os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def _await_image_process(store: Path) -> None:
    try:
        descriptor = os.open(page_sums_of(store), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not lock_within(descriptor, image_process_end_wait_s):
            raise StartupError(
                f"a process of an earlier coordinator still writes {store}. End it, then start again; "
                f"`fuser {store}` shows its number"
            )
    finally:
        os.close(descriptor)


def _changed_ns(directory: Path, identity: Identity) -> int | None:
    """Return when names in a directory last changed; None if it is gone or another directory."""
    try:
        status = os.stat(directory)  # noqa: PTH116
    except OSError:
        return None
    return status.st_mtime_ns if _identity(status) == identity else None


def _look(path: Path) -> Identity | None:
    try:
        return _identity(os.stat(path))  # noqa: PTH116
    except OSError:
        return None


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino
