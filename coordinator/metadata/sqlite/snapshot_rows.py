"""Find which snapshots show which rows of the SQLite store, and what goes with the last of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import apsw

from peacefs.coordinator.metadata.model import ChunkRecord, InodeId
from peacefs.coordinator.metadata.store import ROOT
from peacefs.protocol.ids import ChunkId

from .reader import CHUNK_COLUMNS, SqliteReader, chunk_record
from .schema import LIVE

#: The tables with rows that are retired: name, the column that says what a row is about, the rest of its key.
_TABLES = (
    ("reference", "inode", "position"),
    ("attribute", "inode", "name"),
    ("entry", "parent", "name"),
    ("inode", "inode", "inode"),
)
_PARENT_AT = "SELECT parent FROM entry WHERE inode = ? AND to_tx > ? AND from_tx <= ?"
_TAKEN = "SELECT at_tx, directory FROM snapshot UNION ALL SELECT at_tx, directory FROM pin ORDER BY at_tx"
#: A moment later than all transactions and still within the rows that are valid now.
_NOW = LIVE - 1


class SnapshotRows(SqliteReader):
    """The part of a transaction that is about snapshots.

    What snapshots there are is kept in memory from one request to the next, so that none costs nothing.
    """

    #: The number of the request that is under way.
    tx: int

    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__(connection)
        self._taken: list[tuple[int, InodeId]] | None = None
        self._directories: frozenset[InodeId] | None = None
        self._places: dict[tuple[InodeId, InodeId, int], bool] = {}

    def _change(self, statement: str, values: Sequence[Any]) -> int:
        """Execute a statement that changes rows; return how many."""
        self._execute(statement, values)
        return self._connection.changes()

    def forget_places(self) -> None:
        """Forget the places of inodes, which are valid for one request only."""
        self._places.clear()

    def forget_snapshots(self) -> None:
        """After they were changed, or a change of them was rolled back."""
        self._taken = None
        self._directories = None

    # -- which there are -----------------------------------------------------------------------------

    def _snapshots_taken(self) -> list[tuple[int, InodeId]]:
        """All snapshots, and pins, as (transaction, directory), in order."""
        if self._taken is None:
            rows = self._execute(_TAKEN).fetchall()
            self._taken = [(at_tx, directory) for at_tx, directory in rows]
        return self._taken

    def has_snapshots(self) -> bool:
        return bool(self._snapshots_taken())

    def last_snapshot_tx(self) -> int:
        taken = self._snapshots_taken()
        return taken[-1][0] if taken else -1

    def set_allows_snapshots(self, directory: InodeId, allows: bool) -> None:
        if allows:
            self._execute("INSERT OR IGNORE INTO snapshot_directory VALUES (?)", (directory,))
        else:
            self._execute("DELETE FROM snapshot_directory WHERE directory = ?", (directory,))
        self.forget_snapshots()

    def forget_directory(self, directory: InodeId) -> None:
        """Before an inode is removed."""
        if self._directories is None:
            self._directories = frozenset(self.snapshot_directories())
        if directory in self._directories:
            self.set_allows_snapshots(directory, False)

    def add_snapshot(self, directory: InodeId, name: str, now_ms: int) -> None:
        self._execute("INSERT INTO snapshot VALUES (?, ?, ?, ?)", (directory, name, self.tx, now_ms))
        self.forget_snapshots()

    def rename_snapshot(self, directory: InodeId, name: str, new_name: str) -> None:
        self._execute("UPDATE snapshot SET name = ? WHERE directory = ? AND name = ?", (new_name, directory, name))

    def remove_snapshot(self, directory: InodeId, name: str) -> None:
        snapshot = self.snapshot(directory, name)
        assert snapshot is not None, f"directory {directory} has no snapshot {name}"
        self._execute("DELETE FROM snapshot WHERE directory = ? AND name = ?", (directory, name))
        self._execute("INSERT INTO purge VALUES (?)", (snapshot.at_tx,))
        self.forget_snapshots()

    def pin(self, directory: InodeId) -> int:
        self._execute("INSERT INTO pin VALUES (?, ?)", (self.tx, directory))
        self.forget_snapshots()
        return self.tx

    def unpin(self, at_tx: int) -> None:
        self._execute("DELETE FROM pin WHERE at_tx = ?", (at_tx,))
        self._execute("INSERT INTO purge VALUES (?)", (at_tx,))
        self.forget_snapshots()

    # -- what they show --------------------------------------------------------------------------------

    def shown_by(self, inode: InodeId, from_tx: int, to_tx: int | None) -> int | None:
        """The youngest snapshot that shows what was valid of an inode in from_tx <= t < to_tx (None for now).

        Each is asked where the inode was when it was taken, so that what was moved since counts where it was.
        """
        taken = self._snapshots_taken()
        before = bisect_left(taken, (self.tx if to_tx is None else to_tx, 0))
        for at_tx, directory in reversed(taken[bisect_left(taken, (from_tx, 0)) : before]):
            if self._lay_in(inode, directory, at_tx):
                return at_tx
        return None

    def snapshotted_within(self, inode: InodeId) -> InodeId | None:
        if not self.has_snapshots():
            return None
        rows: list[tuple[InodeId]] = self._execute("SELECT DISTINCT directory FROM snapshot").fetchall()
        for (directory,) in rows:
            if self._lay_in(directory, inode, _NOW):
                return directory
        return None

    def _lay_in(self, inode: InodeId, directory: InodeId, at_tx: int) -> bool:
        """Return whether an inode was a directory or lay below it. If so, the entries between them exist."""
        climbed = []
        found = None
        while found is None:
            if inode in (directory, ROOT):
                found = inode == directory
            elif (inode, directory, at_tx) in self._places:
                found = self._places[inode, directory, at_tx]
            else:
                climbed.append(inode)
                row = self._execute(_PARENT_AT, (inode, at_tx, at_tx)).fetchone()
                if row is None:
                    found = False
                else:
                    inode = row[0]
        self._places.update(((passed, directory, at_tx), found) for passed in climbed)
        return found

    # -- what is left of those that are gone --------------------------------------------------------------

    def purge_retired(self, limit: int) -> tuple[list[ChunkRecord], bool]:
        freed: list[ChunkRecord] = []
        row = self._execute("SELECT at_tx FROM purge ORDER BY at_tx LIMIT 1").fetchone()
        if row is None:
            return freed, False
        left = limit
        for table, about, rest in _TABLES:
            left -= self._purge_table(table, about, rest, row[0], left, freed)
            if left <= 0:
                return freed, True
        self._execute("DELETE FROM purge WHERE at_tx = ?", row)
        return freed, self._execute("SELECT 1 FROM purge LIMIT 1").fetchone() is not None

    def _purge_table(
        self, table: str, about: str, rest: str, gone_tx: int, limit: int, freed: list[ChunkRecord]
    ) -> int:
        """Rows that were kept for a snapshot that is gone stay for an older one, or go. How many there were."""
        chunk = "chunk" if table == "reference" else "0"
        rows = self._execute(
            f"SELECT {about}, {rest}, to_tx, from_tx, {chunk} FROM {table} WHERE kept_for = ? LIMIT ?",
            (gone_tx, limit),
        ).fetchall()
        where = f"WHERE {about} = ? AND {rest} = ? AND to_tx = ?"
        for inode, other, to_tx, from_tx, chunk_id in rows:
            kept_for = self.shown_by(inode, from_tx, to_tx)
            if kept_for is not None:
                self._execute(f"UPDATE {table} SET kept_for = ? {where}", (kept_for, inode, other, to_tx))
                continue
            self._execute(f"DELETE FROM {table} {where}", (inode, other, to_tx))
            if table == "reference":
                freed += self.unrefer(chunk_id)
        return len(rows)

    def unrefer(self, chunk: ChunkId) -> list[ChunkRecord]:
        """One reference less; the chunk itself when that was the last."""
        row = self._execute(f"SELECT {CHUNK_COLUMNS}, referrers FROM chunk WHERE chunk = ?", (chunk,)).fetchone()
        if row[-1] > 1:
            self._execute("UPDATE chunk SET referrers = referrers - 1 WHERE chunk = ?", (chunk,))
            return []
        self._execute("DELETE FROM chunk WHERE chunk = ?", (chunk,))
        return [chunk_record(row[:-1])]

    # -- what waits for a name -----------------------------------------------------------------------------

    def stage(self, inode: InodeId) -> None:
        self._execute("INSERT INTO staged VALUES (?)", (inode,))

    def unstage(self, inode: InodeId) -> bool:
        return self._change("DELETE FROM staged WHERE inode = ?", (inode,)) == 1

    def discard_unfinished(self) -> None:
        """At a start: nobody is left who could name what is staged, or copies what is pinned."""
        self._execute("INSERT INTO discarded SELECT inode, ? FROM staged", (self.tx,))
        self._execute("DELETE FROM staged")
        self._execute("INSERT INTO purge SELECT at_tx FROM pin")
        self._execute("DELETE FROM pin")
        self.forget_snapshots()
