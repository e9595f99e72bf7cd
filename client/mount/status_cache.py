"""Caches the coordinator's answers about paths briefly. Pure: the time is passed in."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from peacefs.client.control.values import FileStatus

# How long a cached status is used. Opens always ask the coordinator.
status_age_s_max: Final = 1.0
statuses_max: Final = 65_536


class StatusCache:
    """A cache of the statuses of existing paths. Missing paths are not cached. Not thread-safe."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[float, FileStatus]] = OrderedDict()
        #: Increases with each change, so that an answer requested before a change is not cached after it.
        self.changes = 0

    def get(self, path: str, now_s: float) -> FileStatus | None:
        found = self._known.get(path)
        if found is None or now_s - found[0] > status_age_s_max:
            return None
        return found[1]

    def put(self, status: FileStatus, now_s: float, asked_at: int) -> None:
        """Cache an answer, unless `changes` has increased since it was `asked_at`, when the request was sent."""
        if asked_at != self.changes:
            return
        self._known[status.path] = now_s, status
        self._known.move_to_end(status.path)
        while len(self._known) > statuses_max:
            self._known.popitem(last=False)

    def forget(self, path: str) -> None:
        """Drop the entry of a path after a change."""
        self.changes += 1
        self._known.pop(path, None)

    def forget_tree(self, path: str) -> None:
        """Drop the entries of a path and of everything below it."""
        self.forget(path)
        below = path.rstrip("/") + "/"
        for known in [known for known in self._known if known.startswith(below)]:
            del self._known[known]
