"""The changes of one request. They are made in memory at once, and are durable when the log has them."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any, Final

import msgspec
from msgspec import structs

from peacefs.coordinator.limits import directory_entries_max
from peacefs.protocol.ids import ChunkId, NodeId, Numbering, first_of_epoch

from .model import (
    AdminDecision,
    ChunkRecord,
    Enrolment,
    Inode,
    InodeId,
    Lease,
    Mode,
    NamespaceUsage,
    Origin,
    QueryRecord,
    Quota,
    RecordedRun,
    RightsChange,
)
from .reader import GC_FLOOR_HELD
from .row_store import Rows, row_of
from .snapshot_rows import SnapshotRows
from .tables import (
    ATTRIBUTE,
    CHUNK,
    CREDENTIAL,
    DATANODE,
    DISCARDED,
    ENTRY,
    FLOOR_MARK,
    INODE,
    KEPT_CHUNK,
    LEASE,
    LIVE,
    META,
    QUOTA,
    REFERENCE,
    RUN,
    SNAPSHOT_DIRECTORY,
    SUPERVISED_QUERY,
    SUPERVISED_STANDBY,
    Row,
)
from .token_records import TokenRecord, token_row

# Maximum number of directories whose number of entries is cached.
directory_counts_max: Final = 100_000
# Changes that may affect the right to remove something: how many are remembered, and how many a recursive delete
# checks again in its commit.
rights_changes_remembered_max: Final = 10_000
rights_changes_checked_max: Final = 1000

_NO_ORIGIN: Final = (None, None)


class Transaction(SnapshotRows):
    """The reads and writes of one request. They take effect all together or not at all.

    `Metadata` owns one instance, which serves all requests, one after the other. Functions in `namespace/` call
    it. The argument `at_tx` of a method is the transaction in which the object was discarded, None for the current
    one.
    """

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self.tx: int = self.meta("last_tx")
        #: Draws inode numbers. None before an epoch has begun.
        self.numbering: Numbering | None = None
        #: The number of entries, for directories that are not in memory as a whole.
        self._entry_counts: dict[InodeId, int] = {}
        self._counted: set[InodeId] = set()
        self._made: set[InodeId] = set()
        self._rights_changes: deque[RightsChange] = deque(maxlen=rights_changes_remembered_max)
        #: `_rights_changes` is complete after this transaction.
        self._remembered_since = self.tx

    def reload(self) -> None:
        """Clear all caches here, because the rows were changed from the log or the journal."""
        self.forget_all()
        self.forget_places()
        self._rights_changes.clear()
        self.tx = self._remembered_since = self.meta("last_tx")

    def begin(self) -> None:
        """Begin the next request, with the next transaction number."""
        self.tx += 1
        if self._places:
            self._places.clear()
        if self._counted:
            self._counted.clear()
        if self._made:
            self._made.clear()

    def move_above(self, tx: int) -> None:
        """Raise the number of the current transaction to at least `tx`."""
        self.tx = max(self.tx, tx)

    def forget_request(self) -> None:
        """Clear cached values that the current request may have changed, because it was undone."""
        self.forget_snapshots()
        for directory in self._counted:
            self._entry_counts.pop(directory, None)

    def forget_all(self) -> None:
        """Clear cached values that any request may have changed, because whole entries were undone."""
        self.forget_snapshots()
        self._entry_counts.clear()

    # -- names ---------------------------------------------------------------------------------------

    def next_inode(self) -> InodeId:
        """Return the number for a new inode, which no other inode ever had."""
        assert self.numbering is not None, "an epoch begins before anything is written"
        return self.numbering.next()

    def add_inode(self, inode: Inode) -> InodeId:
        """Store a new inode and return its number: a new one, unless it has one from `next_inode`.

        If it has a number, its `from_tx` must be `tx`.
        """
        if not inode.inode:
            inode = structs.replace(inode, inode=self.next_inode(), from_tx=self.tx)
        self._rows.keep_inode(inode, is_new=True)
        self._made.add(inode.inode)
        return inode.inode

    def change_inode(self, inode: Inode) -> None:
        """Replace an existing inode. Its kind must stay."""
        self._note_rights(inode.inode, None, moved=False)
        self._change(inode)

    def _change(self, inode: Inode) -> None:
        from_tx = self.kept_inode(inode.inode)
        if from_tx is not None:
            inode = structs.replace(inode, from_tx=from_tx)
        self._rows.keep_inode(inode)

    def touch(self, directory: InodeId, now_ms: int) -> None:
        """Raise the modification time of a directory to `now_ms`. Never lower it."""
        inode = self._rows.inode(directory)
        assert inode is not None, f"directory {directory} does not exist"
        if now_ms > inode.modified_ms or self.has_snapshots():
            self._change(structs.replace(inode, modified_ms=max(now_ms, inode.modified_ms)))

    def remove_inode(self, inode: InodeId, at_tx: int | None = None) -> None:
        rows = self._rows
        self.drop_lease(inode)
        for table in (SNAPSHOT_DIRECTORY, QUOTA, RUN):
            if inode in rows.small[table]:
                rows.delete(table, inode)
        now = rows.inode(inode)
        assert now is not None, f"inode {inode} does not exist"
        if now.attributes_tx:
            for row in rows.group(ATTRIBUTE, inode):
                self._remove(ATTRIBUTE, row, at_tx)
        self.supersede(INODE, row_of(now), at_tx)
        rows.drop_inode(inode)

    def _remove(self, table: int, row: Row, at_tx: int | None) -> None:
        self.supersede(table, row, at_tx)
        self._rows.delete(table, row[0], row[1])

    def set_attribute(self, inode: InodeId, name: str, value: bytes) -> None:
        """Set an extended attribute of an inode. Removing the inode removes it."""
        self._drop_attribute(inode, name)
        self._rows.put(ATTRIBUTE, (inode, name, LIVE, self.tx, value, None))
        self._note_attributes(inode, self.tx)

    def drop_attribute(self, inode: InodeId, name: str) -> None:
        """Remove an extended attribute that the inode has."""
        self._drop_attribute(inode, name)
        self._note_attributes(inode, self.tx if self.attributes(inode) else 0)

    def _drop_attribute(self, inode: InodeId, name: str) -> None:
        for row in self._rows.group(ATTRIBUTE, inode):
            if row[1] == name:
                self._remove(ATTRIBUTE, row, None)

    def _note_attributes(self, inode: InodeId, at_tx: int) -> None:
        now = self._rows.inode(inode)
        assert now is not None, f"inode {inode} does not exist"
        self._change(structs.replace(now, attributes_tx=at_tx))

    def add_entry(self, parent: InodeId, name: str, inode: InodeId, origin: Origin | None = None) -> None:
        """Add a name to a directory. Raises NameTaken."""
        if not self._rows.add_name((parent, name, LIVE, self.tx, inode, *(origin or _NO_ORIGIN), None)):
            raise NameTaken(f"directory {parent} has an entry {name} already")
        self._count(parent, 1)
        self._note_rights(parent, inode, moved=inode not in self._made)

    def remove_entry(self, parent: InodeId, name: str, at_tx: int | None = None) -> None:
        rows = self._rows
        if self.has_snapshots():
            row = rows.row(ENTRY, parent, name)
            assert row is not None, f"directory {parent} has no entry {name}"
            self.supersede(ENTRY, row, at_tx)
        child = rows.child(parent, name)
        assert child is not None, f"directory {parent} has no entry {name}"
        rows.drop_name(parent, name, child)
        self._count(parent, -1)

    def _note_rights(self, inode: InodeId, child: InodeId | None, *, moved: bool) -> None:
        if len(self._rights_changes) == self._rights_changes.maxlen:
            self._remembered_since = self._rights_changes[0].tx
        self._rights_changes.append(RightsChange(self.tx, inode, child, moved))

    def rights_changes(self, since_tx: int) -> list[RightsChange] | None:
        """Return the changes of rights since a transaction. None if they are too many, or not remembered."""
        if since_tx < self._remembered_since:
            return None
        found = list(itertools.takewhile(lambda change: change.tx > since_tx, reversed(self._rights_changes)))
        return found if len(found) <= rights_changes_checked_max else None

    def entry_count(self, directory: InodeId) -> int:
        """Return the number of entries of a directory, or a little more. It is exact near the limit."""
        names = self._rows.names_of(directory)
        if names.is_whole:
            return len(names.inodes)
        if directory not in self._entry_counts:
            if len(self._entry_counts) >= directory_counts_max:
                self._entry_counts.clear()
            self._entry_counts[directory] = self._counted_entries(directory)
        return self._entry_counts[directory]

    def _counted_entries(self, directory: InodeId) -> int:
        whole = self._rows.whole_directory(directory)
        if whole is not None:
            return len(whole.inodes)
        changed = len(self._rows.changed[ENTRY].get(directory, ()))
        counted = self.count_children(directory, "", directory_entries_max + changed) + changed
        if counted < directory_entries_max:
            return counted
        exact = self._rows.whole_directory(directory, directory_entries_max + changed)
        assert exact is not None, f"directory {directory} has more entries than any may have"
        return len(exact.inodes)

    def _count(self, directory: InodeId, change: int) -> None:
        if directory in self._entry_counts:
            self._counted.add(directory)
            self._entry_counts[directory] += change

    def discard(self, inode: InodeId, at_tx: int | None = None) -> None:
        """Queue an inode to be reclaimed."""
        self._rows.put(DISCARDED, (inode, at_tx or self.tx))

    def undiscard(self, inode: InodeId) -> None:
        """Take an inode out of the reclaim queue."""
        self._rows.delete(DISCARDED, inode)

    # -- chunks --------------------------------------------------------------------------------------

    def add_chunk(self, inode: InodeId, position: int, record: ChunkRecord, checksum: int) -> bool:
        """Store a new chunk at a position of a file. If its id is known, do nothing and return False."""
        if self._rows.cached_row(CHUNK, record.chunk) is not None:
            return False
        hint = msgspec.json.encode(record.hint).decode()
        row = (record.chunk, record.version, record.length, checksum, record.replication, 1, hint)
        self._rows.put(CHUNK, row)
        self._rows.put(REFERENCE, (inode, position, LIVE, self.tx, record.chunk, record.length, None))
        return True

    def set_chunk_replication(self, chunk: ChunkId, replication: int) -> bool:
        """Set the replication of a chunk, and return whether that changed it.

        The replication of a chunk with several references is only raised.
        """
        row = self._rows.cached_row(CHUNK, chunk)
        if row is None or not (row[4] < replication or (row[4] > replication and row[5] == 1)):
            return False
        self._rows.put(CHUNK, (*row[:4], replication, *row[5:]))
        return True

    def add_reference(self, inode: InodeId, position: int, chunk: ChunkId, length: int) -> None:
        """Add a reference to an existing chunk."""
        self._rows.put(REFERENCE, (inode, position, LIVE, self.tx, chunk, length, None))
        row = self._rows.cached_row(CHUNK, chunk)
        assert row is not None, f"chunk {chunk} does not exist"
        self._rows.put(CHUNK, (*row[:5], row[5] + 1, row[6]))

    def drop_references(
        self, inode: InodeId, limit: int, at_tx: int | None = None
    ) -> tuple[int, list[ChunkRecord]]:
        """Remove up to `limit` references of a file.

        Return how many, and the chunks that have no reference any more.
        """
        rows = self._references(inode)[:limit]
        return len(rows), self._drop(inode, rows, at_tx or self.tx)

    def cut_references(self, inode: InodeId, position: int) -> list[ChunkRecord]:
        """Remove the references from a position on. Return the chunks that have no reference any more."""
        return self._drop(inode, [row for row in self._references(inode) if row[1] >= position], self.tx)

    def _drop(self, inode: InodeId, rows: list[Row], at_tx: int) -> list[ChunkRecord]:
        freed = []
        for row in rows:
            self._remove(REFERENCE, row, at_tx)
            if not self.has_snapshots() or self.shown_by(inode, row[3], at_tx) is None:
                freed += self.unrefer(row[4])
        return freed

    def next_position(self, inode: InodeId) -> int:
        """Return the position after a file's last reference."""
        rows = self._references(inode)
        return rows[-1][1] + 1 if rows else 0

    def shorten_reference(self, inode: InodeId, position: int, length: int) -> None:
        """Shorten the reference at a position to the first `length` bytes of its chunk."""
        (row,) = (row for row in self._references(inode) if row[1] == position)
        if self.has_snapshots() and self.shown_by(inode, row[3], self.tx) is not None:
            self._remove(REFERENCE, row, None)
            self.add_reference(inode, position, row[4], length)
        else:
            self._rows.put(REFERENCE, (inode, position, LIVE, self.tx, row[4], length, None))

    def raise_gc_floor(self, floor: ChunkId) -> None:
        """Raise the GC floor, unless it is held. Never lower it."""
        if not self.gc_floor_held():
            self.set_meta("floor", max(floor, self.floor()))

    def keep_chunk(self, chunk: ChunkId, for_ms: int) -> None:
        """Keep a chunk without references for `for_ms` of time in which a coordinator serves."""
        self._rows.put(KEPT_CHUNK, (chunk, self.meta("served_ms") + for_ms))

    def advance_gc_floor(self, drawn: ChunkId, elapsed_ms: int, settled_after_ms: int) -> None:
        """Add to the time in which a coordinator served. `drawn` is the highest number drawn so far.

        Raises the GC floor, unless it is held, to the number that was `drawn` before the last `settled_after_ms`
        of that time. Ends the keeping of chunks whose time is over.
        """
        marks, kept = self._rows.small[FLOOR_MARK], self._rows.small[KEPT_CHUNK]
        is_new = drawn > max(max(marks, default=0), self.floor()) and not self.gc_floor_held()
        if not (is_new or marks or kept):
            # Nothing waits for this time, so an idle cluster commits nothing.
            return
        served_ms = self.meta("served_ms") + elapsed_ms
        self.set_meta("served_ms", served_ms)
        if is_new:
            self._rows.put(FLOOR_MARK, (drawn, served_ms))
        settled = [number for number, at_ms in marks.values() if at_ms <= served_ms - settled_after_ms]
        if settled:
            self.raise_gc_floor(max(settled))
            for number in [number for number in marks if number <= max(settled)]:
                self._rows.delete(FLOOR_MARK, number)
        for chunk in [chunk for chunk, until_ms in kept.values() if until_ms <= served_ms]:
            self._rows.delete(KEPT_CHUNK, chunk)

    def release_gc_floor(self) -> bool:
        """Let the GC floor rise again, with numbers drawn from now on. Return whether it was held."""
        held = self.gc_floor_held()
        self.set_meta("floor_held", 0)
        if held:
            for number in list(self._rows.small[FLOOR_MARK]):
                self._rows.delete(FLOOR_MARK, number)
        return held

    def accept_lost_commits(self) -> bool:
        """Give up the commits that are missing, and return whether there were any. The GC floor stays held."""
        lacked = self.lacks_commits()
        if lacked:
            self.set_meta("floor_held", GC_FLOOR_HELD)
            # Numbers above all lost ones, so that datanodes do not report these again.
            self.move_above(first_of_epoch(self.meta("epoch")))
        return lacked

    # -- all else ------------------------------------------------------------------------------------

    def set_run(self, directory: InodeId, run: RecordedRun) -> None:
        """Set the run of a directory. Removing the directory removes it."""
        self._rows.put(RUN, (directory, *run))

    def set_quota(self, directory: InodeId, quota: Quota) -> None:
        self._rows.put(QUOTA, (directory, quota.names_max, quota.bytes_max, *quota.used))

    def drop_quota(self, directory: InodeId) -> None:
        self._rows.delete(QUOTA, directory)

    def charge_quota(self, directory: InodeId, change: NamespaceUsage) -> None:
        """Add to the counts of a directory's quota, if it has one."""
        row = self._rows.small[QUOTA].get(directory)
        if row is not None:
            self._rows.put(QUOTA, (*row[:3], row[3] + change.names, row[4] + change.bytes))

    def set_lease(self, inode: InodeId, lease: Lease) -> None:
        """Set the lease of a file."""
        self._rows.put(LEASE, (inode, *lease))

    def drop_lease(self, inode: InodeId) -> None:
        """Remove the lease of a file, if it has one."""
        if inode in self._rows.small[LEASE]:
            self._rows.delete(LEASE, inode)

    def remember(self, request: str, answer: bytes, now_ms: int) -> None:
        """Store the answer for a request id that has none."""
        self._rows.answers.add(request, answer, now_ms)

    def forget_answers(self, before_ms: int, limit: int, keep: int = 0) -> int:
        """Delete up to `limit` answers older than `before_ms`, oldest first, and return how many.

        The last `keep` answers always stay.
        """
        return self._rows.answers.drop_oldest(before_ms, limit, keep)

    def decide(self, node: NodeId, decision: AdminDecision) -> None:
        """Record the operator's decision about a datanode."""
        if decision.mode is Mode.IN_SERVICE:
            self._rows.delete(DATANODE, node)
        else:
            self._rows.put(DATANODE, (node, decision.mode.value, decision.until_ms))

    def enrol(self, node: NodeId, enrolment: Enrolment) -> None:
        """Record the credential of a datanode that has none."""
        if node not in self._rows.small[CREDENTIAL]:
            self._put_enrolment(node, enrolment)

    def replace_enrolment(self, node: NodeId, enrolment: Enrolment) -> None:
        """Replace the credential of a datanode that has one."""
        if node in self._rows.small[CREDENTIAL]:
            self._put_enrolment(node, enrolment)

    def _put_enrolment(self, node: NodeId, enrolment: Enrolment) -> None:
        self._rows.put(CREDENTIAL, (node, enrolment.public_key, enrolment.enrolled_ms, enrolment.revoked_ms))

    def forget_enrolment(self, node: NodeId) -> None:
        """Remove the credential of a datanode."""
        self._rows.delete(CREDENTIAL, node)

    def record_query(self, record: QueryRecord) -> None:
        """Record a supervised query, in place of the record with its name."""
        row: tuple[Any, ...] = (
            *(record.name, record.user, int(record.is_superuser), msgspec.json.encode(record.command).decode()),
            *(record.checkpoint, msgspec.json.encode(record.nodes).decode(), record.restarts_max),
            *(record.phase.value, record.agent, record.process, record.run, record.location),
            *(record.restarts, record.reason, record.changed_ms),
        )
        self._rows.put(SUPERVISED_QUERY, row)
        if record.has_standby:
            self._rows.put(SUPERVISED_STANDBY, (record.name,))
        elif record.name in self._rows.small[SUPERVISED_STANDBY]:
            self._rows.delete(SUPERVISED_STANDBY, record.name)

    def forget_query(self, name: str) -> None:
        self._rows.delete(SUPERVISED_QUERY, name)
        self._rows.delete(SUPERVISED_STANDBY, name)

    def record_token(self, record: TokenRecord) -> None:
        """Record a token, in place of the record with its key."""
        table, row = token_row(record)
        self._rows.put(table, row)

    def forget_token(self, record: TokenRecord) -> None:
        table, row = token_row(record)
        self._rows.delete(table, row[0])

    def set_meta(self, key: str, value: int | bytes | str) -> None:
        """Set a value of the table `meta`."""
        self._rows.put(META, (key, value))


class NameTaken(Exception):
    """The directory has an entry of this name already."""
