"""Derives the class of a write from the file's path, and passes completed files to the recurrences.

- blocking: offsets, commits, sources and metadata of Spark checkpoints; state deltas and changelogs; logs that are
  flushed while they are written (files with a lease);
- due: snapshots of Spark's state, which are uploaded beside the next batch;
- bulk: everything else.

RocksDB's archives and SST files are snapshots if the query writes changelogs. If it does not, its batches wait for
them, so they are blocking.
"""

from __future__ import annotations

import re
from typing import Final

from peacefs.coordinator.namespace.checkpoint_root import checkpoint_root
from peacefs.peace.recurrences import RecurrenceKey, Recurrences
from peacefs.protocol.values.query_runs import without_run
from peacefs.protocol.values.write_classes import WriteClass, parse_write_class

changelog_roots_max: Final = 4096

#: Spark writes a state file under a hidden temporary name: `.12.delta.<uuid>.TID3.tmp`.
_STATE_FILE = re.compile(r"\.?\d+(?:_[\w-]+)*\.(delta|changelog|snapshot|zip)(?:\.|$)")
#: The I/O service writes each checkpoint of a unit in a hidden directory with a new name.
_UNFINISHED = re.compile(r"/\.([^/]+)-\d+\.[0-9a-f]{12}\.writing$")
_STATE_DIRECTORY = re.compile(r"state/\d+/\d+/")


class WriteClasses:
    """Derives classes, and passes completed files to the recurrences. Owned by the event loop."""

    def __init__(self, recurrences: Recurrences) -> None:
        self.recurrences = recurrences
        self._with_changelogs: dict[str, None] = {}

    def key(self, path: str, stated: str = "", *, flushed: bool = False) -> RecurrenceKey:
        """Return the root of a file, and the class that its writer `stated`, or else the class of its path.

        `flushed` means that the file is a log that is flushed while it is written.
        """
        root = checkpoint_root(path)
        write_class = (
            parse_write_class(stated) if stated else self._class(root, without_run(path), flushed=flushed)
        )
        return RecurrenceKey(_UNFINISHED.sub(r"/\1", root), write_class)

    def _class(self, root: str, path: str, *, flushed: bool) -> WriteClass:
        below = path.removeprefix(root).lstrip("/")
        kind, _, name = below.partition("/")
        if kind in ("offsets", "commits", "sources", "metadata") and (name or kind == "metadata"):
            return WriteClass.BLOCKING
        if kind.startswith(".metadata."):
            return WriteClass.BLOCKING
        if _STATE_DIRECTORY.match(below):
            return self._class_of_state(root, below.rpartition("/")[2])
        return WriteClass.BLOCKING if flushed else WriteClass.BULK

    def _class_of_state(self, root: str, name: str) -> WriteClass:
        found = _STATE_FILE.match(name)
        what = found[1] if found else ""
        if what == "changelog":
            self._with_changelogs.pop(root, None)
            self._with_changelogs[root] = None
            while len(self._with_changelogs) > changelog_roots_max:
                del self._with_changelogs[next(iter(self._with_changelogs))]
        if what in ("delta", "changelog"):
            return WriteClass.BLOCKING
        return WriteClass.DUE if what == "snapshot" or root in self._with_changelogs else WriteClass.BLOCKING

    def wrote(self, now_s: float, key: RecurrenceKey, size: int, user: str) -> None:
        """Record that a file was completed; or, with size 0, that its writer began or continued."""
        self.recurrences.wrote(now_s, key, size, user)

    def due_s(self, now_s: float, key: RecurrenceKey) -> float | None:
        """Return when a due write is expected again; None for other classes, or if the write is not periodic."""
        if key.write_class is not WriteClass.DUE:
            return None
        forecast = self.recurrences.forecast(key, now_s)
        return None if forecast is None else forecast.next_s(now_s)
