"""Writing the SQLite store: what one request changes, on the one connection that writes."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from contextlib import AbstractContextManager
from typing import Any, Final

import apsw
import msgspec

from peacefs.coordinator.limits import directory_entries_max
from peacefs.coordinator.metadata.model import (
    AdminDecision,
    ChunkRecord,
    Enrolment,
    Inode,
    InodeId,
    InodeKind,
    Lease,
    Mode,
    NamespaceUsage,
    Origin,
    QueryRecord,
    Quota,
    RecordedRun,
    RightsChange,
)
from peacefs.coordinator.metadata.store import Transaction
from peacefs.coordinator.metadata.token_records import TokenRecord
from peacefs.protocol.ids import ChunkId, NodeId, Numbering, first_of_epoch

from .connections import Execute
from .schema import DIRECTORY_KIND, FILE_KIND, GC_FLOOR_HELD, LIVE
from .snapshot_rows import SnapshotRows
from .token_records import forgotten, recorded

# The coordinator remembers for so many directories how many entries they have.
directory_counts_max: Final = 100_000
# Changes of who may remove what: how many are remembered, how many a recursive delete looks at again in its
# commit, and how often it looks through the whole tree when there were more.
rights_changes_remembered_max: Final = 10_000
rights_changes_checked_max: Final = 1000


_KIND_NUMBERS = {InodeKind.FILE: FILE_KIND, InodeKind.DIRECTORY: DIRECTORY_KIND}

_ADD_INODE = f"INSERT INTO inode VALUES (?, {LIVE}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?)"
_CHANGE_INODE = f"""
    UPDATE inode SET permission = ?, owner = ?, group_name = ?, modified_ms = ?, accessed_ms = ?,
        length = ?, block_bytes = ?, replication = ?, acl = ?, attributes_tx = ?
    WHERE inode = ? AND to_tx = {LIVE}"""
_TOUCH = f"UPDATE inode SET modified_ms = max(modified_ms, ?) WHERE inode = ? AND to_tx = {LIVE}"
_COPY_INODE = f"""
    INSERT INTO inode
    SELECT inode, ?, from_tx, kind, permission, owner, group_name, modified_ms, accessed_ms,
        length, block_bytes, replication, ?, acl, attributes_tx FROM inode WHERE inode = ? AND to_tx = {LIVE}"""
_ADD_ENTRY = f"INSERT INTO entry VALUES (?, ?, {LIVE}, ?, ?, ?, ?, NULL)"
_ADD_REFERENCE = f"INSERT INTO reference VALUES (?, ?, {LIVE}, ?, ?, ?, NULL)"
_ADD_ATTRIBUTE = f"INSERT INTO attribute VALUES (?, ?, {LIVE}, ?, ?, NULL)"
_ADD_CHUNK = "INSERT OR IGNORE INTO chunk VALUES (?, ?, ?, ?, ?, 1, ?)"
_SET_CHUNK_REPLICATION = """
    UPDATE chunk SET replication = ?
    WHERE chunk = ? AND (replication < ? OR (replication > ? AND referrers = 1))"""
_REFERENCES_TO_DROP = f"""
    SELECT position, chunk, from_tx FROM reference WHERE inode = ? AND to_tx = {LIVE} ORDER BY position LIMIT ?"""
_REFERENCES_TO_CUT = f"""
    SELECT position, chunk, from_tx FROM reference WHERE inode = ? AND position >= ? AND to_tx = {LIVE}
    ORDER BY position"""
_NEXT_POSITION = f"SELECT coalesce(max(position) + 1, 0) FROM reference WHERE inode = ? AND to_tx = {LIVE}"
_REFERENCE = f"SELECT chunk, from_tx FROM reference WHERE inode = ? AND position = ? AND to_tx = {LIVE}"
_SHORTEN_REFERENCE = f"""
    UPDATE reference SET length = ?, from_tx = ? WHERE inode = ? AND position = ? AND to_tx = {LIVE}"""

_REMEMBER = "INSERT INTO request VALUES (NULL, ?, ?, ?) ON CONFLICT (request) DO NOTHING"
# Numbers are drawn one after the other, and rows are dropped from the front only.
_OLDEST_ANSWERS = """
    SELECT number, at_ms FROM request WHERE number <= (SELECT max(number) FROM request) - ?
    ORDER BY number LIMIT ?"""
_LAST_MARK_AND_KEPT = """
    SELECT (SELECT coalesce(max(number), 0) FROM floor_mark), EXISTS (SELECT 1 FROM kept_chunk)"""
_SETTLED_MARK = "SELECT max(number) FROM floor_mark WHERE served_ms <= ?"
_CHARGE_QUOTA = "UPDATE quota SET names = names + ?, bytes = bytes + ? WHERE directory = ?"


class SqliteTransaction(SnapshotRows, Transaction):
    """Changes on the writing connection. One instance serves all requests, one after the other."""

    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__(connection)
        self.tx: int = self.meta("last_tx")
        #: Draws inode numbers; there is none before an epoch has begun.
        self.numbering: Numbering | None = None
        #: Cached from one request to the next; None when it has to be read anew.
        self._floor: ChunkId | None = None
        self._has_attributes: bool | None = None
        self._quota_directories: frozenset[InodeId] | None = None
        self._entry_counts: dict[InodeId, int] = {}
        self._counted: set[InodeId] = set()
        self._made: set[InodeId] = set()
        self._rights_changes: deque[RightsChange] = deque(maxlen=rights_changes_remembered_max)
        #: Changes after this transaction are remembered.
        self._remembered_since = self.tx

    def record(self, execute: Execute) -> None:
        """Have every statement executed by `execute`, which keeps what changes something."""
        self._execute = execute

    def reload(self) -> None:
        """Forget all that is kept in memory: others have changed the store."""
        self.forget_all()
        self.forget_places()
        self._rights_changes.clear()
        self.tx = self._remembered_since = self.meta("last_tx")

    def begin(self) -> None:
        """The next request begins, with a number of its own."""
        self.tx += 1
        self.forget_places()
        self._counted.clear()
        self._made.clear()

    def move_above(self, tx: int) -> None:
        """Give what is under way a number that is not below `tx`."""
        self.tx = max(self.tx, tx)

    def view(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def _supersede(self, row: str, values: tuple[Any, ...], at_tx: int | None) -> None:
        """Deletes a live row, given as "table WHERE key", or retires it if a snapshot shows it.

        The first of the key is the inode, or the directory, that the row is about.
        """
        if self.has_snapshots():
            at_tx = at_tx or self.tx
            (from_tx,) = self._execute(f"SELECT from_tx FROM {row} AND to_tx = {LIVE}", values).fetchone()
            kept_for = self.shown_by(values[0], from_tx, at_tx)
            if kept_for is not None:
                table, where = row.split(" ", 1)
                self._execute(
                    f"UPDATE {table} SET to_tx = ?, kept_for = ? {where} AND to_tx = {LIVE}",
                    (at_tx, kept_for, *values),
                )
                return
        deleted = self._change(f"DELETE FROM {row} AND to_tx = {LIVE}", values)
        assert deleted == 1, f"{deleted} live rows in {row} for {values}"

    def _keep_inode(self, inode: InodeId) -> None:
        """Before an inode is changed: leaves the old row behind if a snapshot shows it."""
        if not self.has_snapshots():
            return
        where = f"WHERE inode = ? AND to_tx = {LIVE}"
        (from_tx,) = self._execute(f"SELECT from_tx FROM inode {where}", (inode,)).fetchone()
        if from_tx > self.last_snapshot_tx():
            return
        kept_for = self.shown_by(inode, from_tx, self.tx)
        if kept_for is not None:
            self._execute(_COPY_INODE, (self.tx, kept_for, inode))
        # Even if none shows it, lest it be asked again at every change.
        self._execute(f"UPDATE inode SET from_tx = ? {where}", (self.tx, inode))

    def add_inode(self, inode: Inode) -> InodeId:
        assert self.numbering is not None, "an epoch begins before anything is written"
        number = self.numbering.next()
        self._execute(_ADD_INODE, (number, self.tx, _KIND_NUMBERS[inode.kind], *inode[2:]))
        self._made.add(number)
        return number

    def change_inode(self, inode: Inode) -> None:
        self._keep_inode(inode.inode)
        self._note_rights(inode.inode, None, moved=False)
        self._execute(_CHANGE_INODE, (*inode[2:], inode.inode))

    def touch(self, directory: InodeId, now_ms: int) -> None:
        self._keep_inode(directory)
        self._execute(_TOUCH, (now_ms, directory))

    def remove_inode(self, inode: InodeId, at_tx: int | None = None) -> None:
        self.drop_lease(inode)
        self.forget_directory(inode)
        if inode in self.quota_directories():
            self.drop_quota(inode)
        self._execute("DELETE FROM run WHERE directory = ?", (inode,))
        if self._attributes_exist():
            for name in self.attributes(inode):
                self._supersede("attribute WHERE inode = ? AND name = ?", (inode, name), at_tx)
        self._supersede("inode WHERE inode = ?", (inode,), at_tx)

    def _attributes_exist(self) -> bool:
        """Return whether any inode has an attribute: where none has, removing one costs no look-up."""
        if self._has_attributes is None:
            self._has_attributes = self._execute("SELECT 1 FROM attribute LIMIT 1").fetchone() is not None
        return self._has_attributes

    def set_attribute(self, inode: InodeId, name: str, value: bytes) -> None:
        if name in self.attributes(inode):
            self._supersede("attribute WHERE inode = ? AND name = ?", (inode, name), None)
        self._execute(_ADD_ATTRIBUTE, (inode, name, self.tx, value))
        self._has_attributes = True
        self._note_attributes(inode, self.tx)

    def drop_attribute(self, inode: InodeId, name: str) -> None:
        self._supersede("attribute WHERE inode = ? AND name = ?", (inode, name), None)
        self._note_attributes(inode, self.tx if self.attributes(inode) else 0)

    def _note_attributes(self, inode: InodeId, at_tx: int) -> None:
        self._keep_inode(inode)
        self._execute(f"UPDATE inode SET attributes_tx = ? WHERE inode = ? AND to_tx = {LIVE}", (at_tx, inode))

    def add_entry(self, parent: InodeId, name: str, inode: InodeId, origin: Origin | None = None) -> None:
        self._execute(_ADD_ENTRY, (parent, name, self.tx, inode, *(origin or (None, None))))
        self._count(parent, 1)
        self._note_rights(parent, inode, moved=inode not in self._made)

    def _note_rights(self, inode: InodeId, child: InodeId | None, *, moved: bool) -> None:
        if len(self._rights_changes) == self._rights_changes.maxlen:
            self._remembered_since = self._rights_changes[0].tx
        self._rights_changes.append(RightsChange(self.tx, inode, child, moved))

    def rights_changes(self, since_tx: int) -> list[RightsChange] | None:
        if since_tx < self._remembered_since:
            return None
        found = list(itertools.takewhile(lambda change: change.tx > since_tx, reversed(self._rights_changes)))
        return found if len(found) <= rights_changes_checked_max else None

    def entry_count(self, directory: InodeId) -> int:
        if directory not in self._entry_counts:
            if len(self._entry_counts) >= directory_counts_max:
                self._entry_counts.clear()
            self._entry_counts[directory] = self.count_children(directory, "", directory_entries_max)
        return self._entry_counts[directory]

    def _count(self, directory: InodeId, change: int) -> None:
        self._counted.add(directory)
        if directory in self._entry_counts:
            self._entry_counts[directory] += change

    def forget_request(self) -> None:
        """Forget everything cached that the current request may have changed, because it was rolled back."""
        self._forget_kept()
        for directory in self._counted:
            self._entry_counts.pop(directory, None)

    def forget_all(self) -> None:
        """The same of all requests of a commit that was rolled back as a whole."""
        self._forget_kept()
        self._entry_counts.clear()

    def _forget_kept(self) -> None:
        self.forget_snapshots()
        self.forget_quotas()
        self._floor = None
        self._has_attributes = None

    def remove_entry(self, parent: InodeId, name: str, at_tx: int | None = None) -> None:
        self._supersede("entry WHERE parent = ? AND name = ?", (parent, name), at_tx)
        self._count(parent, -1)

    def add_chunk(self, inode: InodeId, position: int, record: ChunkRecord, checksum: int) -> bool:
        hint = msgspec.json.encode(record.hint).decode()
        values = (record.chunk, record.version, record.length, checksum, record.replication, hint)
        if self._change(_ADD_CHUNK, values) == 0:
            return False
        self._execute(_ADD_REFERENCE, (inode, position, self.tx, record.chunk, record.length))
        return True

    def set_chunk_replication(self, chunk: ChunkId, replication: int) -> bool:
        return self._change(_SET_CHUNK_REPLICATION, (replication, chunk, replication, replication)) == 1

    def add_reference(self, inode: InodeId, position: int, chunk: ChunkId, length: int) -> None:
        self._execute(_ADD_REFERENCE, (inode, position, self.tx, chunk, length))
        self._execute("UPDATE chunk SET referrers = referrers + 1 WHERE chunk = ?", (chunk,))

    def drop_references(
        self, inode: InodeId, limit: int, at_tx: int | None = None
    ) -> tuple[int, list[ChunkRecord]]:
        rows = self._execute(_REFERENCES_TO_DROP, (inode, limit)).fetchall()
        return len(rows), self._drop(inode, rows, at_tx or self.tx)

    def cut_references(self, inode: InodeId, position: int) -> list[ChunkRecord]:
        return self._drop(inode, self._execute(_REFERENCES_TO_CUT, (inode, position)).fetchall(), self.tx)

    def _drop(self, inode: InodeId, rows: list[tuple[int, ChunkId, int]], at_tx: int) -> list[ChunkRecord]:
        freed = []
        for position, chunk, from_tx in rows:
            self._supersede("reference WHERE inode = ? AND position = ?", (inode, position), at_tx)
            if self.shown_by(inode, from_tx, at_tx) is None:
                freed += self.unrefer(chunk)
        return freed

    def next_position(self, inode: InodeId) -> int:
        return int(self._execute(_NEXT_POSITION, (inode,)).fetchone()[0])

    def shorten_reference(self, inode: InodeId, position: int, length: int) -> None:
        chunk, from_tx = self._execute(_REFERENCE, (inode, position)).fetchone()
        if self.shown_by(inode, from_tx, self.tx) is not None:
            self._supersede("reference WHERE inode = ? AND position = ?", (inode, position), None)
            self.add_reference(inode, position, chunk, length)
        else:
            self._execute(_SHORTEN_REFERENCE, (length, self.tx, inode, position))

    def quota_directories(self) -> frozenset[InodeId]:
        if self._quota_directories is None:
            self._quota_directories = super().quota_directories()
        return self._quota_directories

    def forget_quotas(self) -> None:
        """After there are others, or a change of them was rolled back."""
        self._quota_directories = None

    def set_run(self, directory: InodeId, run: RecordedRun) -> None:
        self._execute("INSERT OR REPLACE INTO run VALUES (?, ?, ?, ?, ?, ?, ?)", (directory, *run))

    def set_quota(self, directory: InodeId, quota: Quota) -> None:
        values = (directory, quota.names_max, quota.bytes_max, *quota.used)
        self._execute("INSERT OR REPLACE INTO quota VALUES (?, ?, ?, ?, ?)", values)
        self.forget_quotas()

    def drop_quota(self, directory: InodeId) -> None:
        self._execute("DELETE FROM quota WHERE directory = ?", (directory,))
        self.forget_quotas()

    def charge_quota(self, directory: InodeId, change: NamespaceUsage) -> None:
        self._execute(_CHARGE_QUOTA, (*change, directory))

    def set_lease(self, inode: InodeId, lease: Lease) -> None:
        self._execute("INSERT OR REPLACE INTO lease VALUES (?, ?, ?)", (inode, *lease))

    def drop_lease(self, inode: InodeId) -> None:
        self._execute("DELETE FROM lease WHERE inode = ?", (inode,))

    def discard(self, inode: InodeId, at_tx: int | None = None) -> None:
        self._execute("INSERT INTO discarded VALUES (?, ?)", (inode, at_tx or self.tx))

    def undiscard(self, inode: InodeId) -> None:
        self._execute("DELETE FROM discarded WHERE inode = ?", (inode,))

    def remember(self, request: str, answer: bytes, now_ms: int) -> bool:
        return self._change(_REMEMBER, (request, answer, now_ms)) == 1

    def forget_answers(self, before_ms: int, limit: int, keep: int = 0) -> int:
        rows = self._execute(_OLDEST_ANSWERS, (keep, limit)).fetchall()
        old = list(itertools.takewhile(lambda row: row[1] < before_ms, rows))
        if old:
            self._execute("DELETE FROM request WHERE number <= ?", (old[-1][0],))
        return len(old)

    def decide(self, node: NodeId, decision: AdminDecision) -> None:
        if decision.mode is Mode.IN_SERVICE:
            self._execute("DELETE FROM datanode WHERE node = ?", (node,))
        else:
            values = (node, decision.mode.value, decision.until_ms)
            self._execute("INSERT OR REPLACE INTO datanode (node, mode, until_ms) VALUES (?, ?, ?)", values)

    def enrol(self, node: NodeId, enrolment: Enrolment) -> None:
        values = (node, enrolment.public_key, enrolment.enrolled_ms, enrolment.revoked_ms)
        self._execute("INSERT OR IGNORE INTO credential VALUES (?, ?, ?, ?)", values)

    def replace_enrolment(self, node: NodeId, enrolment: Enrolment) -> None:
        values = (enrolment.public_key, enrolment.enrolled_ms, enrolment.revoked_ms, node)
        self._execute(
            "UPDATE credential SET public_key = ?, enrolled_ms = ?, revoked_ms = ? WHERE node = ?", values
        )

    def forget_enrolment(self, node: NodeId) -> None:
        self._execute("DELETE FROM credential WHERE node = ?", (node,))

    def record_query(self, record: QueryRecord) -> None:
        values = (
            *(record.name, record.user, record.is_superuser, msgspec.json.encode(record.command).decode()),
            *(record.checkpoint, msgspec.json.encode(record.nodes).decode(), record.restarts_max),
            *(record.phase.value, record.agent, record.process, record.run, record.location),
            *(record.restarts, record.reason, record.changed_ms),
        )
        self._execute(f"INSERT OR REPLACE INTO supervised_query VALUES ({', '.join('?' * len(values))})", values)
        if record.has_standby:
            self._execute("INSERT OR IGNORE INTO supervised_standby VALUES (?)", (record.name,))
        else:
            self._execute("DELETE FROM supervised_standby WHERE name = ?", (record.name,))

    def forget_query(self, name: str) -> None:
        self._execute("DELETE FROM supervised_query WHERE name = ?", (name,))
        self._execute("DELETE FROM supervised_standby WHERE name = ?", (name,))

    def record_token(self, record: TokenRecord) -> None:
        self._execute(*recorded(record))

    def forget_token(self, record: TokenRecord) -> None:
        self._execute(*forgotten(record))

    def floor(self) -> ChunkId:
        if self._floor is None:
            self._floor = super().floor()
        return self._floor

    def raise_gc_floor(self, floor: ChunkId) -> None:
        if not self.gc_floor_held():
            self.set_meta("floor", max(floor, self.floor()))

    def keep_chunk(self, chunk: ChunkId, for_ms: int) -> None:
        until_ms = self.meta("served_ms") + for_ms
        self._execute("INSERT OR REPLACE INTO kept_chunk (chunk, until_ms) VALUES (?, ?)", (chunk, until_ms))

    def advance_gc_floor(self, drawn: ChunkId, elapsed_ms: int, settled_after_ms: int) -> None:
        marked, kept = self._execute(_LAST_MARK_AND_KEPT).fetchone()
        is_new = drawn > max(marked, self.floor()) and not self.gc_floor_held()
        if not (is_new or marked or kept):
            # Nothing waits for time to pass: an idle cluster commits nothing.
            return
        served_ms = self.meta("served_ms") + elapsed_ms
        self.set_meta("served_ms", served_ms)
        if is_new:
            self._execute("INSERT INTO floor_mark (number, served_ms) VALUES (?, ?)", (drawn, served_ms))
        settled = self._execute(_SETTLED_MARK, (served_ms - settled_after_ms,)).fetchone()[0]
        if settled is not None:
            self.raise_gc_floor(settled)
            self._execute("DELETE FROM floor_mark WHERE number <= ?", (settled,))
        self._execute("DELETE FROM kept_chunk WHERE until_ms <= ?", (served_ms,))

    def release_gc_floor(self) -> bool:
        held = self.gc_floor_held()
        self.set_meta("floor_held", 0)
        if held:
            self._execute("DELETE FROM floor_mark")
        return held

    def accept_lost_commits(self) -> bool:
        lacked = self.lacks_commits()
        if lacked:
            self.set_meta("floor_held", GC_FLOOR_HELD)
            # No datanode shows those again that are given up.
            self.move_above(first_of_epoch(self.meta("epoch")))
        return lacked

    def set_meta(self, key: str, value: int | bytes) -> None:
        """Replaces a value of the table of single values."""
        self._floor = None if key == "floor" else self._floor
        self._execute("UPDATE meta SET value = ? WHERE key = ?", (value, key))
