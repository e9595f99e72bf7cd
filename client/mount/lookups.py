"""Asks the coordinator about paths, and caches the answers briefly."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Final

from peacefs.client.control.values import FileStatus, Space
from peacefs.client.filesystem import PeaceFileSystem

from .status_cache import StatusCache, status_age_s_max

# How long the cluster's space is cached for `df`.
space_age_s_max: Final = 5.0


class Lookups:
    """A cache of the cluster's metadata for all processes of a mount. Thread-safe.

    An answer may be up to `status_age_s_max` old. `forget` must follow each local change, so that local processes
    see it at once.
    """

    def __init__(self, files: PeaceFileSystem) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._statuses = StatusCache()
        self._allowed: dict[tuple[str, str], float] = {}
        self._space: tuple[float, Space] | None = None

    def status(self, path: str) -> FileStatus:
        """Return the status of a path, from the cache if recent. Raises FileNotFound, AccessDenied."""
        with self._lock:
            known = self._statuses.get(path, time.monotonic())
        return self.fresh_status(path) if known is None else known

    def fresh_status(self, path: str) -> FileStatus:
        """Return the status of a path from the coordinator. Raises FileNotFound, AccessDenied."""
        now_s = time.monotonic()
        with self._lock:
            asked_at = self._statuses.changes
        status = self._files.status(path)
        with self._lock:
            self._statuses.put(status, now_s, asked_at)
        return status

    def list(self, path: str) -> Iterator[FileStatus]:
        """List a directory; a file lists itself. Raises FileNotFound, AccessDenied."""
        now_s = time.monotonic()
        with self._lock:
            asked_at = self._statuses.changes
        for page in self._files.pages(path):
            with self._lock:
                for entry in page.entries:
                    self._statuses.put(entry, now_s, asked_at)
            yield from page.entries
            now_s = time.monotonic()

    def check_access(self, path: str, action: str) -> None:
        """Raise AccessDenied unless the mount's user has this access."""
        now_s = time.monotonic()
        with self._lock:
            self._allowed = {key: at for key, at in self._allowed.items() if now_s - at < status_age_s_max}
            if (path, action) in self._allowed:
                return
        self._files.check_access(path, action)
        with self._lock:
            self._allowed[path, action] = now_s

    def space(self) -> Space:
        now_s = time.monotonic()
        if self._space is None or now_s - self._space[0] > space_age_s_max:
            self._space = now_s, self._files.space()
        return self._space[1]

    def forget(self, path: str) -> None:
        """Drop the cache entries of a path, of its parent and of everything below it, after a change."""
        with self._lock:
            self._allowed.clear()
            self._statuses.forget(path.rpartition("/")[0] or "/")
            self._statuses.forget_tree(path)
