"""Deletes temporary files of dead writers, if the operator has enabled it.

A file is deleted if its name is temporary (`temporary_names`), nobody extends it, and it has not changed for the
configured age. The age is taken from the wall clock, and this process must also have watched the file for
`temporary_watched_s`, so a clock that jumps makes no file old. If the writer returns later, its rename is refused
because the file is gone. The file does not go to the trash, because no reader knows its name.
"""

from __future__ import annotations

import logging
from typing import Final

from peacefs.coordinator.metadata.model import ROOT, Inode, InodeId, InodeKind, Lease
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import NamespacePath
from peacefs.coordinator.namespace.resolution import find
from peacefs.protocol.errors import AlreadyBeingCreated, PeacefsError
from peacefs.protocol.values.temporary_names import wanted_name

from .context import OperationContext
from .leases import Leases

temporary_watched_s: Final = 3600.0
temporary_watched_max: Final = 100_000
temporary_entries_per_turn: Final = 300

log = logging.getLogger("peacefs.coordinator")


class Watch:
    """Temporary files, and since when each is unchanged. Pure. Forgets files that a scan does not meet."""

    def __init__(self) -> None:
        self._since: dict[InodeId, tuple[Inode, float]] = {}
        self._met: dict[InodeId, tuple[Inode, float]] = {}

    def is_left(self, now_s: float, now_ms: int, inode: Inode, age_s: float) -> bool:
        """Return whether a file's writer has left it, as far as clocks can tell."""
        seen, since_s = self._since.get(inode.inode, (inode, now_s))
        if seen != inode:
            since_s = now_s
        if len(self._met) < temporary_watched_max:
            self._met[inode.inode] = (inode, since_s)
        return now_ms - inode.modified_ms >= age_s * 1000 and now_s - since_s >= temporary_watched_s

    def end_look(self) -> None:
        """End a scan that has met all temporary files."""
        self._since, self._met = self._met, {}


class TemporaryFiles:
    """Scans all names in short turns. Keeps only the temporary files that it has seen."""

    def __init__(self, context: OperationContext, leases: Leases) -> None:
        self._ctx = context
        self._leases = leases
        self._watch = Watch()
        self.collected = 0

    async def collect(self, age_s: float) -> int:
        """Delete the files that were left for `age_s` seconds. Return how many."""
        before = self.collected
        after: tuple[InodeId, str] = (0, "")
        while entries := self._ctx.reader.entries(*after, temporary_entries_per_turn):
            for _parent, name, inode in entries:
                if wanted_name(name) is not None:
                    await self._look_at(inode, age_s)
            after = entries[-1][:2]
            await self._ctx.sleep(0)
        self._watch.end_look()
        return self.collected - before

    async def _look_at(self, number: InodeId, age_s: float) -> None:
        inode = self._ctx.reader.inode(number)
        if inode is None or inode.kind is InodeKind.DIRECTORY:
            return
        path = path_of(self._ctx.reader, number)
        lease = self._ctx.reader.lease(number)
        left = self._watch.is_left(self._ctx.monotonic(), self._ctx.now_ms(), inode, age_s)
        if path is None or not left or self._is_extended(number, lease):
            return
        now_ms = self._ctx.now_ms()
        try:
            deleted = await self._ctx.commit(lambda tx: _delete(tx, path, inode, lease, now_ms), in_any_case=True)
        except PeacefsError as refusal:
            log.warning("the temporary file %s could not be deleted: %s", path, refusal.message)
            return
        if deleted is not None:
            self._ctx.free(deleted.freed)
            self.collected += 1
            log.info("deleted %s (%d bytes), left behind by a dead writer", path, inode.length)

    def _is_extended(self, inode: InodeId, lease: Lease | None) -> bool:
        try:
            self._leases.check_free(self._ctx.monotonic(), inode, lease, "", "collect")
        except AlreadyBeingCreated:
            return True
        return False


def _delete(
    tx: Transaction, path: NamespacePath, seen: Inode, lease: Lease | None, now_ms: int
) -> namespace.DeleteResult | None:
    """Delete one file. Return None if it was renamed, replaced, changed or leased since the scan."""
    way = find(tx, path)
    if not way.is_whole or way.deepest != seen or tx.lease(seen.inode) != lease:
        return None
    return namespace.delete(tx, path, False, now_ms)


def path_of(reader: Reader, inode: InodeId) -> NamespacePath | None:
    """Return the path of an inode; None if a directory above it has been deleted."""
    way = reader.ancestors(inode)
    return NamespacePath(tuple(name for _, name in way)) if way and way[0][0] == ROOT else None
