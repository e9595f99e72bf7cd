"""Finds the snapshots that show a row, keeps retired rows for them, and purges rows that no snapshot shows."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from peacefs.protocol.ids import ChunkId

from .changed_rows import NOTHING
from .model import ROOT, ChunkRecord, InodeId, NamespaceUsage
from .reader import Reader
from .records import chunk_record
from .row_store import Rows, row_of
from .tables import (
    CHUNK,
    INODE,
    LIVE,
    PAST,
    PIN,
    PURGE,
    QUOTA,
    REFERENCE,
    RETIRING,
    SNAPSHOT,
    SNAPSHOT_DIRECTORY,
    STAGED,
    TABLES,
    Row,
)

#: Later than all transactions, but within the validity of live rows.
_NOW = LIVE - 1
#: The second and third part of a key in a row.
_SECOND = slice(1, 3)
#: By table, the index of the column `kept_for` in a row.
_KEPT_FOR = {"inode": 12, "entry": 7, "reference": 6, "attribute": 5}


class SnapshotRows(Reader):
    """The part of a transaction that is about snapshots.

    A superseded row is deleted, unless a snapshot shows it. Then it is retired: kept until the youngest such
    snapshot is deleted.
    """

    #: The transaction number of the current request.
    tx: int

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self._taken: list[tuple[int, InodeId]] | None = None
        #: Trees that have been counted, for a change under way: their usage when the count began.
        self._counted_trees: dict[InodeId, NamespaceUsage] = {}
        #: By table and removed snapshot, the key of the last row that `purge_retired` read from the image.
        self._purged: dict[tuple[int, int], tuple[Any, ...]] = {}
        self._places: dict[tuple[InodeId, InodeId, int], bool] = {}

    def forget_places(self) -> None:
        """Clear the cache of inodes' places, which is valid for one request only."""
        self._places.clear()

    def forget_snapshots(self) -> None:
        """Clear the list of snapshots, because they changed or a change of them was undone."""
        self._taken = None

    # -- which there are -----------------------------------------------------------------------------

    def _snapshots_taken(self) -> list[tuple[int, InodeId]]:
        """Return all snapshots and pins as (transaction, directory), in order."""
        if self._taken is None:
            small = self._rows.small
            self._taken = sorted(
                [(row[2], row[0]) for row in small[SNAPSHOT].values()] + list(small[PIN].values())
            )
        return self._taken

    def has_snapshots(self) -> bool:
        return bool(self._snapshots_taken())

    def last_snapshot_tx(self) -> int:
        taken = self._snapshots_taken()
        return taken[-1][0] if taken else -1

    def set_allows_snapshots(self, directory: InodeId, allows: bool) -> None:
        if allows:
            self._rows.put(SNAPSHOT_DIRECTORY, (directory,))
        else:
            self._rows.delete(SNAPSHOT_DIRECTORY, directory)

    def add_snapshot(self, directory: InodeId, name: str, now_ms: int) -> None:
        """Add a snapshot that shows the directory as it is after this transaction. The name must be free."""
        self._rows.put(SNAPSHOT, (directory, name, self.tx, now_ms))
        self.forget_snapshots()

    def rename_snapshot(self, directory: InodeId, name: str, new_name: str) -> None:
        snapshot = self.snapshot(directory, name)
        assert snapshot is not None, f"directory {directory} has no snapshot {name}"
        self._rows.delete(SNAPSHOT, directory, name)
        self._rows.put(SNAPSHOT, (directory, new_name, *snapshot[1:]))

    def remove_snapshot(self, directory: InodeId, name: str) -> None:
        """Remove a snapshot. Rows that only it shows are purged later."""
        snapshot = self.snapshot(directory, name)
        assert snapshot is not None, f"directory {directory} has no snapshot {name}"
        self._rows.delete(SNAPSHOT, directory, name)
        self._rows.put(PURGE, (snapshot.at_tx,))
        self.forget_snapshots()

    def pin(self, directory: InodeId) -> int:
        """Keep a directory readable as it is after this transaction, until `unpin` or the next start.

        Return the number of the transaction, for `at`. A pin is a snapshot that no client sees.
        """
        self._rows.put(PIN, (self.tx, directory))
        self.forget_snapshots()
        return self.tx

    def unpin(self, at_tx: int) -> None:
        """Remove a pin. Rows that only it showed are purged later."""
        self._rows.delete(PIN, at_tx)
        self._rows.put(PURGE, (at_tx,))
        self.forget_snapshots()

    # -- counting trees ---------------------------------------------------------------------------------

    def begin_count(self, directory: InodeId) -> int:
        """Pin the present state of a tree, so that it can be counted, and sum up all later changes below it.

        Return the number of the transaction, for `at`. The sum is in a row of the table `quota` without limits, so
        that changes are charged, and undone, as below a quota. The next start removes that row.
        """
        self._counted_trees.pop(directory, None)
        self._rows.put(QUOTA, (directory, None, None, 0, 0))
        return self.pin(directory)

    def is_counting(self, directory: InodeId) -> bool:
        """Return whether a count has begun and not ended."""
        return directory in self._rows.small[QUOTA] and self.quota(directory) is None

    def note_count(self, directory: InodeId, usage: NamespaceUsage) -> None:
        """Record what a tree held when its count began."""
        self._counted_trees[directory] = usage

    def counted_usage(self, directory: InodeId) -> NamespaceUsage | None:
        """Return the usage of a tree that has been counted, with all changes since; None if it has not been."""
        counted, row = self._counted_trees.get(directory), self._rows.small[QUOTA].get(directory)
        if counted is None or row is None:
            return None
        return NamespaceUsage(counted.names + row[3], counted.bytes + row[4])

    def end_count(self, directory: InodeId, at_tx: int) -> None:
        """End what `begin_count` began, unless it has ended. A quota that was set meanwhile stays."""
        if at_tx not in self._rows.small[PIN]:
            return
        self.unpin(at_tx)
        self._counted_trees.pop(directory, None)
        if self.is_counting(directory):
            self._rows.delete(QUOTA, directory)

    # -- what they show --------------------------------------------------------------------------------

    def shown_by(self, inode: InodeId, from_tx: int, to_tx: int | None) -> int | None:
        """Return the youngest snapshot that shows a row of an inode, valid in from_tx <= t < to_tx (None for now).

        What counts is where the inode was when the snapshot was taken, not where it was moved since.
        """
        taken = self._snapshots_taken()
        before = bisect_left(taken, (self.tx if to_tx is None else to_tx, 0))
        for at_tx, directory in reversed(taken[bisect_left(taken, (from_tx, 0)) : before]):
            if self._lay_in(inode, directory, at_tx):
                return at_tx
        return None

    def snapshotted_within(self, inode: InodeId) -> InodeId | None:
        """Return a directory with snapshots that is the inode or lies below it, None if there is none."""
        for directory in sorted({row[0] for row in self._rows.small_rows(SNAPSHOT)}):
            if self._lay_in(directory, inode, _NOW):
                return directory  # type: ignore[no-any-return]
        return None

    def _lay_in(self, inode: InodeId, directory: InodeId, at_tx: int) -> bool:
        """Return whether an inode was the directory, or lay below it, at a transaction."""
        climbed = []
        found = None
        while found is None:
            if inode in (directory, ROOT):
                found = inode == directory
            elif (inode, directory, at_tx) in self._places:
                found = self._places[inode, directory, at_tx]
            else:
                climbed.append(inode)
                parent = self._parent_at(inode, at_tx)
                if parent is None:
                    found = False
                else:
                    inode = parent
        self._places.update(((passed, directory, at_tx), found) for passed in climbed)
        return found

    def _parent_at(self, inode: InodeId, at_tx: int) -> InodeId | None:
        for row in self._rows.entry_versions(inode):
            if row[2] > at_tx >= row[3]:
                return row[0]  # type: ignore[no-any-return]
        return None

    # -- retiring --------------------------------------------------------------------------------------

    def supersede(self, table: int, row: Row, at_tx: int | None) -> None:
        """Retire a row if a snapshot shows it. The caller deletes it from the table of live rows."""
        width = len(TABLES[table].keys)
        if not self.has_snapshots():
            return
        at_tx = at_tx or self.tx
        kept_for = self.shown_by(row[0], row[width + 1], at_tx)
        if kept_for is not None:
            self._retire(table, row, at_tx, kept_for)

    def _retire(self, table: int, row: Row, at_tx: int, kept_for: int) -> None:
        width, kept_at = len(TABLES[table].keys), _KEPT_FOR[TABLES[table].name]
        retired = [*row]
        retired[width], retired[kept_at] = at_tx, kept_for
        self._rows.put(table + PAST, tuple(retired))

    def kept_inode(self, inode: InodeId) -> int | None:
        """Retire the row of an inode that is about to change, if a snapshot shows it.

        Return the transaction from which the new row is valid, None if that of the old row stays.
        """
        if not self.has_snapshots():
            return None
        now = self._rows.inode(inode)
        assert now is not None, f"inode {inode} does not exist"
        if now.from_tx > self.last_snapshot_tx():
            return None
        kept_for = self.shown_by(inode, now.from_tx, self.tx)
        if kept_for is not None:
            self._retire(INODE, row_of(now), self.tx, kept_for)
        # Also if no snapshot shows the row, so that the next change of the inode need not search again.
        return self.tx

    def purge_retired(self, limit: int) -> tuple[list[ChunkRecord], bool]:
        """Purge up to `limit` rows that no snapshot shows any more.

        Return the chunks that this freed, and whether there are more rows.
        """
        freed: list[ChunkRecord] = []
        purge = self._rows.small[PURGE]
        if not purge:
            return freed, False
        gone_tx = min(purge)
        left = limit
        for table in RETIRING:
            left -= self._purge_table(table, gone_tx, left, freed)
            if left <= 0:
                return freed, True
        self._rows.delete(PURGE, gone_tx)
        return freed, bool(purge)

    def _purge_table(self, table: int, gone_tx: int, limit: int, freed: list[ChunkRecord]) -> int:
        """Delete rows that were kept for a removed snapshot, unless an older one shows them.

        Return the number of rows that were looked at.
        """
        shape = TABLES[table + PAST]
        width, done = len(shape.keys), 0
        while done < limit and (rows := self._kept_for(table, gone_tx, limit - done)):
            done += len(rows)
            for row in rows:
                to_tx, from_tx = row[width - 1], row[width]
                kept_for = self.shown_by(row[0], from_tx, to_tx)
                if kept_for is not None:
                    kept = [*row]
                    kept[_KEPT_FOR[shape.name]] = kept_for
                    self._rows.put(table + PAST, tuple(kept))
                    continue
                self._rows.delete(table + PAST, row[0], row[1] if width == 2 else row[_SECOND])
                if table == REFERENCE:
                    freed += self.unrefer(row[4])
        return done

    def _kept_for(self, table: int, gone_tx: int, limit: int) -> list[Row]:
        """Return up to `limit` rows that are kept for a removed snapshot; none only if there are none."""
        return self._next_kept_for(table, gone_tx, limit) or self._all_kept_for(table, gone_tx, limit)

    def _next_kept_for(self, table: int, gone_tx: int, limit: int) -> list[Row]:
        """Return rows of the image that follow those of the last call.

        The image still has rows that were purged lately. A search from the beginning would read them all again.
        """
        shape, changed = TABLES[table + PAST], self._rows.changed[table + PAST]
        width, keys = len(shape.keys), ", ".join(shape.keys)
        statement = (
            f"SELECT * FROM {shape.name} WHERE kept_for = ? AND ({keys}) > ({', '.join('?' * width)})"
            f" ORDER BY {keys} LIMIT ?"
        )
        while True:
            after = self._purged.get((table, gone_tx), (0,) * width)
            page = self._rows.image.query(statement, gone_tx, *after, limit)
            if not page:
                return []
            self._purged = {(table, gone_tx): page[-1][:width]}
            found = [row for row in page if row[1 if width == 2 else _SECOND] not in changed.get(row[0], NOTHING)]
            if found:
                return found

    def _all_kept_for(self, table: int, gone_tx: int, limit: int) -> list[Row]:
        shape, rows = TABLES[table + PAST], self._rows
        width, kept_at = len(shape.keys), _KEPT_FOR[shape.name]
        changed = {(key[0], *_flat(key[1:])): row for key, row in rows.changed_in(table + PAST)}
        of_image = rows.image.query(
            f"SELECT * FROM {shape.name} WHERE kept_for = ? LIMIT ?", gone_tx, limit + len(changed)
        )
        found = [row for row in of_image if row[:width] not in changed]
        found += [row for row in changed.values() if row is not None and row[kept_at] == gone_tx]
        return found[:limit]

    def unrefer(self, chunk: ChunkId) -> list[ChunkRecord]:
        """Decrement the references of a chunk. Remove it with the last one, and return it then."""
        row = self._rows.cached_row(CHUNK, chunk)
        assert row is not None, f"chunk {chunk} is referred to and does not exist"
        if row[5] > 1:
            self._rows.put(CHUNK, (*row[:5], row[5] - 1, row[6]))
            return []
        self._rows.delete(CHUNK, chunk)
        return [chunk_record(row)]

    # -- what waits for a name -----------------------------------------------------------------------------

    def stage(self, inode: InodeId) -> None:
        """Record an inode that a later request will name. The next start discards it if that has not happened."""
        self._rows.put(STAGED, (inode,))

    def unstage(self, inode: InodeId) -> bool:
        """Remove the record that `stage` made. Return whether there was one."""
        is_there = inode in self._rows.small[STAGED]
        if is_there:
            self._rows.delete(STAGED, inode)
        return is_there

    def discard_unfinished(self) -> None:
        """Discard staged inodes, pins and counts, at a start. The requests that made them have ended."""
        for inode in list(self._rows.small[STAGED]):
            self.discard(inode)
            self._rows.delete(STAGED, inode)
        for at_tx in list(self._rows.small[PIN]):
            self._rows.delete(PIN, at_tx)
            self._rows.put(PURGE, (at_tx,))
        for directory in [row[0] for row in self._rows.small[QUOTA].values() if row[1] is None and row[2] is None]:
            self._rows.delete(QUOTA, directory)
        self.forget_snapshots()

    def discard(self, inode: InodeId, at_tx: int | None = None) -> None:
        """Queue an inode to be reclaimed."""
        raise NotImplementedError


def _flat(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return key if len(key) != 1 or not isinstance(key[0], tuple) else key[0]
