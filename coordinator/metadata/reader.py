"""Reads the metadata: the current state, or the state in a snapshot.

Reads do not wait. A row that is not in memory is loaded from the image. `Rows.ahead` is the last entry that was
read and is not durable; an answer must wait until it is.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Sequence
from typing import Any, Final

from peacefs.protocol.ids import ChunkId, NodeId

from .model import (
    ROOT,
    AdminDecision,
    ChunkRecord,
    Discarded,
    Enrolment,
    FileChunk,
    Inode,
    InodeId,
    Lease,
    Mode,
    NamespaceUsage,
    Origin,
    QueryRecord,
    Quota,
    RecordedRun,
    Snapshot,
)
from .records import chunk_record, query_record
from .row_cache import UNKNOWN
from .row_store import Rows, inode_of
from .tables import (
    ATTRIBUTE,
    CHUNK,
    CREDENTIAL,
    DATANODE,
    DISCARDED,
    ENTRY,
    INODE,
    KEPT_CHUNK,
    LEASE,
    LIVE,
    META,
    PAST,
    QUOTA,
    REFERENCE,
    RUN,
    SNAPSHOT,
    SNAPSHOT_DIRECTORY,
    SUPERVISED_QUERY,
    SUPERVISED_STANDBY,
    TABLES,
    Row,
)
from .token_records import TokenRecords, read_token_records

#: Values of `floor_held` in the table `meta`; 0 means that the floor is not held. The second value also means that
#: commits are missing and that no operator has accepted that. Earlier versions treat it like the first.
GC_FLOOR_HELD: Final = 1
GC_FLOOR_HELD_FOR_LOST_COMMITS: Final = 2


class Reader:
    """Reads the current state. Used by the thread that owns the metadata.

    All that is read between two `await` is of one state.
    """

    #: The directory at which paths begin.
    root: InodeId = ROOT

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._discarded: list[InodeId] = []

    def at(self, at_tx: int, root: InodeId) -> Reader:
        """Return a reader of the state after transaction `at_tx`, in which paths begin at `root`."""
        return PastReader(self._rows, at_tx, root)

    # -- names ---------------------------------------------------------------------------------------

    def follow(self, names: Sequence[str]) -> tuple[list[InodeId], Inode]:
        """Follow names from the root, as far as they exist.

        Return the inode numbers on the way, beginning with the root, and the last inode.
        """
        passed = self._follow(names)
        last = self.inode(passed[-1])
        assert last is not None, f"an entry names inode {passed[-1]}, which does not exist"
        return passed, last

    def _follow(self, names: Sequence[str]) -> list[InodeId]:
        return self._rows.follow(self.root, names)

    def pass_through(self, names: Sequence[str]) -> list[Inode]:
        """Follow names from the root, as far as they exist. Return the inodes on the way, with the root."""
        return self._rows.inodes_of(self._rows.follow(self.root, names))

    def child(self, parent: InodeId, name: str) -> InodeId | None:
        """Return the inode number of a name in a directory, None if there is no such name."""
        return self._rows.child(parent, name)

    def child_inode(self, parent: InodeId, name: str) -> Inode | None:
        """Return the inode of a name in a directory, None if there is no such name."""
        child = self.child(parent, name)
        return None if child is None else self.inode(child)

    def origin(self, parent: InodeId, name: str) -> Origin | None:
        """Return from where an entry was renamed, None if it was not."""
        row = self._rows.row(ENTRY, parent, name)
        return Origin(row[5], row[6]) if row is not None and row[5] is not None else None

    def inode(self, inode: InodeId) -> Inode | None:
        return self._rows.inode(inode)

    def has_children(self, directory: InodeId) -> bool:
        return bool(self.names_after(directory, "", 1))

    def names_after(self, directory: InodeId, after: str, limit: int) -> list[str]:
        """Return up to `limit` names of a directory that follow `after`, in byte order. Begin with ""."""
        return self._rows.names_after(directory, after, limit)

    def children(self, directory: InodeId, after: str, limit: int) -> list[tuple[str, Inode]]:
        """Return up to `limit` names of a directory that follow `after`, with their inodes, in byte order.

        Begin with "".
        """
        return self._rows.children(directory, after, limit)

    def entries(self, parent: InodeId, name: str, limit: int) -> list[tuple[InodeId, str, InodeId]]:
        """Return up to `limit` entries of all directories that follow (parent, name), as (parent, name, inode).

        Begin with (0, ""). Entries that change between two calls may be returned or not.
        """
        statement = (
            f"SELECT * FROM entry WHERE (parent, name) > (?, ?) AND to_tx = {LIVE} ORDER BY parent, name LIMIT ?"
        )
        rows = self._rows.image.query(statement, parent, name, limit)
        self._rows.look_at_all(ENTRY)
        found = {row[:2]: row for row in rows}
        end = rows[-1][:2] if len(rows) == limit else None
        for key, row in self._rows.changed_in(ENTRY):
            if key > (parent, name) and (end is None or key <= end):
                if row is None:
                    found.pop(key, None)
                else:
                    found[key] = row
        if not found and end is not None:
            return self.entries(end[0], end[1], limit)
        return [(row[0], row[1], row[4]) for _, row in sorted(found.items())[:limit]]

    def count_children(self, directory: InodeId, after: str, limit: int) -> int:
        """Return about the number of entries that follow the name `after`, and at most `limit`."""
        names = self._rows.whole_directory(directory)
        if names is not None:
            return min(len(self._rows.names_after(directory, after, limit)), limit)
        statement = f"""SELECT count(*) FROM
            (SELECT 1 FROM entry WHERE parent = ? AND name > ? AND to_tx = {LIVE} LIMIT ?)"""
        return int(self._rows.image.query(statement, directory, after, limit)[0][0])

    def ancestors(self, inode: InodeId) -> list[tuple[InodeId, str]]:
        """Return the path of an inode as entries (parent, name), beginning with the one in the root."""
        found: list[tuple[InodeId, str]] = []
        while place := self._rows.place(inode):
            found.append(place)
            inode = place[0]
        return found[::-1]

    def is_in_tree(self, inode: InodeId) -> bool:
        """Return whether an inode has a path. It has none in a deleted tree, and before it gets a name."""
        while inode != ROOT:
            place = self._rows.place(inode)
            if place is None:
                return False
            inode = place[0]
        return True

    def attributes(self, inode: InodeId) -> dict[str, bytes]:
        """Return the extended attributes of an inode, in order of their names.

        `Inode.attributes_tx` says whether there are any.
        """
        return {row[1]: row[4] for row in self._rows.group(ATTRIBUTE, inode)}

    def next_discarded(self) -> Discarded | None:
        """Return an inode that waits to be reclaimed, roughly the lowest number; None if none waits."""
        rows = self._rows.small[DISCARDED]
        while self._discarded and self._discarded[-1] not in rows:
            self._discarded.pop()
        if not self._discarded:
            self._discarded = sorted(rows, reverse=True)
        return Discarded(*rows[self._discarded[-1]]) if self._discarded else None

    # -- chunks --------------------------------------------------------------------------------------

    def _references(self, inode: InodeId) -> list[Row]:
        return self._rows.group(REFERENCE, inode)

    def references(self, inode: InodeId) -> list[FileChunk]:
        """Return the chunks of a file, in order."""
        return [FileChunk(row[4], self._version_of(row[4]), row[5]) for row in self._references(inode)]

    def _version_of(self, chunk: ChunkId) -> int:
        row = self._rows.cached_row(CHUNK, chunk)
        assert row is not None, f"chunk {chunk} is referred to and does not exist"
        return int(row[1])

    def references_after(self, inode: InodeId, position: int, limit: int) -> list[tuple[int, FileChunk]]:
        """Return up to `limit` chunks of a file that follow `position`, with their positions. Begin with -1."""
        rows = [row for row in self._references(inode) if row[1] > position][:limit]
        return [(row[1], FileChunk(row[4], self._version_of(row[4]), row[5])) for row in rows]

    def reference_count(self, chunk: ChunkId) -> int:
        """Return the number of references to a chunk, with those in snapshots alone."""
        row = self._rows.cached_row(CHUNK, chunk)
        return row[5] if row else 0

    def referrers(self, chunk: ChunkId, limit: int) -> Iterator[list[InodeId]]:
        """Search all references, `limit` per step, for files that refer to a chunk. Yield those of each step.

        No index leads from a chunk to its files. A file that changes meanwhile may be missed.
        """
        changed, found = self._rows.changed[REFERENCE], set[InodeId]()
        inodes = list(changed)
        for at in range(0, len(inodes), limit):
            self._rows.look_at_all(REFERENCE)
            there = {inode: changed.get(inode, {}).values() for inode in inodes[at : at + limit]}
            step = [inode for inode, rows in there.items() if any(row and row[4] == chunk for _, row in rows)]
            found.update(step)
            yield step
        begin, of = (-1, -1, -1), "FROM reference WHERE (inode, position, to_tx) > (?, ?, ?)"
        page = f"SELECT inode, position, to_tx {of} ORDER BY 1, 2, 3 LIMIT 1 OFFSET ?"
        until = f"(inode, position, to_tx) <= (?, ?, ?) AND chunk = ? AND to_tx = {LIVE}"
        within = f"SELECT DISTINCT inode {of} AND {until}"
        while begin:
            self._rows.look_at_all(REFERENCE)
            ends = self._rows.image.query(page, *begin, limit - 1)
            rows = self._rows.image.query(within, *begin, *(ends[0] if ends else (LIVE, LIVE, LIVE)), chunk)
            in_image = {row[0] for row in rows} - found
            yield sorted(inode for inode in in_image if any(row[4] == chunk for row in self._references(inode)))
            begin = ends[0] if ends else ()

    def chunk(self, chunk: ChunkId) -> ChunkRecord | None:
        row = self._rows.cached_row(CHUNK, chunk)
        return chunk_record(row) if row else None

    def is_needed(self, chunk: ChunkId) -> bool:
        """Return whether a chunk is kept, is part of a file, or may become so again after a crash.

        A removed chunk is garbage only when its removal is durable: a crash before that restores its file.
        """
        if self.is_kept(chunk) or not self._rows.is_settled(CHUNK, chunk):
            return True
        return self._rows.cached_row(CHUNK, chunk) is not None or not self._rows.is_settled(KEPT_CHUNK, chunk)

    def chunks(self, after: ChunkId, limit: int) -> list[ChunkRecord]:
        """Return up to `limit` chunks with ids above `after`, in order of their ids. Begin with 0."""
        rows = self._rows.image.all(TABLES[CHUNK], after, limit)
        self._rows.look_at_all(CHUNK)
        found = {row[0]: row for row in rows}
        end = rows[-1][0] if len(rows) == limit else LIVE
        for chunk, (_, row) in self._rows.changed[CHUNK].items():
            if after < chunk <= end:
                if row is None:
                    found.pop(chunk, None)
                else:
                    found[chunk] = row
        if not found and end != LIVE:
            return self.chunks(end, limit)
        return [chunk_record(found[chunk]) for chunk in sorted(found)[:limit]]

    def floor(self) -> ChunkId:
        """Return the GC floor: datanodes may delete unknown chunks with ids below it that nobody keeps."""
        return int(self.meta("floor"))

    def is_kept(self, chunk: ChunkId) -> bool:
        """Return whether a chunk is kept although no file refers to it: see `Transaction.keep_chunk`."""
        return chunk in self._rows.small[KEPT_CHUNK]

    def gc_floor_held(self) -> bool:
        """Return whether the GC floor is held: see `Metadata.hold_gc_floor`."""
        return bool(self.meta("floor_held"))

    # -- all else ------------------------------------------------------------------------------------

    def answer(self, request: str) -> bytes | None:
        """Return the answer that `remember` stored for a request id, None if there is none."""
        row = self._rows.answers.find(request)
        return row[2] if row else None

    def lease(self, inode: InodeId) -> Lease | None:
        """Return the lease of a file, None if its writer has finished or the file has no lease."""
        row = self._rows.small_row(LEASE, inode)
        return Lease(*row[1:]) if row else None

    def leases_of(self, holder: str) -> dict[InodeId, Lease]:
        """Return the leases of a holder, by file."""
        return {row[0]: Lease(*row[1:]) for row in self._rows.small_rows(LEASE) if row[2] == holder}

    def allows_snapshots(self, directory: InodeId) -> bool:
        return self._rows.small_row(SNAPSHOT_DIRECTORY, directory) is not None

    def snapshot_directories(self) -> list[InodeId]:
        """Return the directories that allow snapshots, in order of their inodes."""
        return sorted(row[0] for row in self._rows.small_rows(SNAPSHOT_DIRECTORY))

    def snapshots(self, directory: InodeId) -> list[Snapshot]:
        """Return the snapshots of a directory, in order of their names."""
        return [Snapshot(*row[1:]) for row in sorted(self._rows.small_rows(SNAPSHOT)) if row[0] == directory]

    def snapshot(self, directory: InodeId, name: str) -> Snapshot | None:
        row = self._rows.small_row(SNAPSHOT, directory, name)
        return Snapshot(*row[1:]) if row else None

    def quota(self, directory: InodeId) -> Quota | None:
        row = self._rows.small_row(QUOTA, directory)
        if row is None or (row[1] is None and row[2] is None):
            return None
        return Quota(row[1], row[2], NamespaceUsage(row[3], row[4]))

    def quota_directories(self) -> KeysView[InodeId]:
        """Return the directories that have a quota, and those that are being counted."""
        return self._rows.small[QUOTA].keys()

    def run(self, directory: InodeId) -> RecordedRun | None:
        """Return the latest run of a directory, None if it never had one."""
        row = self._rows.small_row(RUN, directory)
        return RecordedRun(*row[1:]) if row else None

    def runs(self, after: InodeId, limit: int) -> list[tuple[InodeId, RecordedRun]]:
        """Return up to `limit` directories above inode `after` that have a run, in order. Begin with 0."""
        rows = sorted(row for row in self._rows.small_rows(RUN) if row[0] > after)[:limit]
        return [(row[0], RecordedRun(*row[1:])) for row in rows]

    def supervised_queries(self) -> list[QueryRecord]:
        """Return all supervised queries, in order of their names."""
        standbys = {row[0] for row in self._rows.small_rows(SUPERVISED_STANDBY)}
        return [query_record(row, row[0] in standbys) for row in sorted(self._rows.small_rows(SUPERVISED_QUERY))]

    def decisions(self) -> dict[NodeId, AdminDecision]:
        """Return the decisions about datanodes that are not in service, with those that have expired."""
        return {row[0]: AdminDecision(Mode(row[1]), row[2]) for row in self._rows.small_rows(DATANODE)}

    def enrolments(self) -> dict[NodeId, Enrolment]:
        """Return the credentials of datanodes, with revoked ones."""
        return {row[0]: Enrolment(*row[1:]) for row in self._rows.small_rows(CREDENTIAL)}

    def token_records(self) -> TokenRecords:
        """Return all keys, tokens and OAuth2 clients."""
        return read_token_records(lambda table: sorted(self._rows.small_rows(table), key=lambda row: row[0]))

    def last_tx(self) -> int:
        """Return the number of the last transaction that changed anything."""
        return int(self.meta("last_tx"))

    def lacks_commits(self) -> bool:
        """Return whether commits are known to be missing and no operator has accepted that."""
        return bool(self.meta("floor_held") == GC_FLOOR_HELD_FOR_LOST_COMMITS)

    def meta(self, key: str) -> Any:
        """Return a value of the table `meta`. The key must exist."""
        row = self._rows.small_row(META, key)
        assert row is not None, f"the metadata has no {key}"
        return row[1]

    def close(self) -> None:
        """Do nothing: a reader holds nothing."""


class PastReader(Reader):
    """Reads the state after a past transaction.

    Right only below a directory that has a snapshot, or a pin, of that transaction.
    """

    def __init__(self, rows: Rows, at_tx: int, root: InodeId) -> None:
        super().__init__(rows)
        self._at_tx = at_tx
        self.root = root

    def _valid(
        self, table: int, first: InodeId, second: Any = None, *, after: Any = None, limit: int = -1
    ) -> list[Row]:
        """Return the rows of a group that were valid at `_at_tx`, in the order of their keys.

        With `second`, return only the row of that key. With `after`, return up to `limit` rows behind that key.
        """
        shape, rows, at_tx = TABLES[table], self._rows, self._at_tx
        changed = (
            {(*_parts(second_of), LIVE): row for second_of, (_, row) in rows.changed[table].get(first, {}).items()}
            if shape.is_nested
            else _of_flat(rows.changed[table].get(first))
        )
        past = rows.changed[table + PAST].get(first, {})
        changed.update({_parts(second_of): row for second_of, (_, row) in past.items()})
        if changed and rows.is_ahead:
            rows.ahead = rows.last
        values: list[Any] = [first]
        where = f"{shape.keys[0]} = ? AND to_tx > {at_tx} AND from_tx <= {at_tx}"
        order = ""
        if shape.is_nested:
            if second is not None:
                where += f" AND {shape.keys[1]} = ?"
                values.append(second)
            elif after is not None:
                where += f" AND {shape.keys[1]} > ?"
                values.append(after)
            order = f" ORDER BY {shape.keys[1]}"
        count = limit + len(changed) if limit >= 0 else -1
        read = rows.image.query(f"SELECT * FROM {shape.name} WHERE {where}{order} LIMIT {count}", *values)
        width = len(shape.keys)
        found = {row[1 : width + 1]: row for row in read if row[1 : width + 1] not in changed}
        end = read[-1][1] if limit >= 0 and len(read) == count else None
        for key, row in changed.items():
            if row is None or not row[width] > at_tx >= row[width + 1]:
                continue
            if shape.is_nested and (
                (second is not None and key[0] != second)
                or (after is not None and key[0] <= after)
                or (end is not None and key[0] > end)
            ):
                continue
            found[key] = row
        ordered = [found[key] for key in sorted(found)]
        return ordered if limit < 0 else ordered[:limit]

    def _follow(self, names: Sequence[str]) -> list[InodeId]:
        passed = [self.root]
        for name in names:
            found = self.child(passed[-1], name)
            if found is None:
                break
            passed.append(found)
        return passed

    def pass_through(self, names: Sequence[str]) -> list[Inode]:
        return [inode for passed in self._follow(names) if (inode := self.inode(passed)) is not None]

    def child(self, parent: InodeId, name: str) -> InodeId | None:
        rows = self._valid(ENTRY, parent, name)
        return rows[0][4] if rows else None

    def origin(self, parent: InodeId, name: str) -> Origin | None:
        rows = self._valid(ENTRY, parent, name)
        return Origin(rows[0][5], rows[0][6]) if rows and rows[0][5] is not None else None

    def inode(self, inode: InodeId) -> Inode | None:
        now = self._rows.inode(inode)
        if now is not None and now.from_tx <= self._at_tx:
            # Its row was valid then. That is the usual case, and needs no SQL statement.
            return now
        rows = self._valid(INODE, inode)
        return inode_of(rows[0]) if rows else None

    def names_after(self, directory: InodeId, after: str, limit: int) -> list[str]:
        return [row[1] for row in self._valid(ENTRY, directory, after=after, limit=limit)]

    def children(self, directory: InodeId, after: str, limit: int) -> list[tuple[str, Inode]]:
        found = []
        rows = self._valid(ENTRY, directory, after=after, limit=limit)
        if rows and self._rows.inodes.get(rows[0][4]) is UNKNOWN:
            self._rows.load_inodes_below(directory, after, rows[-1][1])
        for row in rows:
            inode = self.inode(row[4])
            assert inode is not None, f"{row[1]} in directory {directory} led nowhere at {self._at_tx}"
            found.append((row[1], inode))
        return found

    def count_children(self, directory: InodeId, after: str, limit: int) -> int:
        return len(self._valid(ENTRY, directory, after=after, limit=limit))

    def attributes(self, inode: InodeId) -> dict[str, bytes]:
        return {row[1]: row[4] for row in self._valid(ATTRIBUTE, inode)}

    def _references(self, inode: InodeId) -> list[Row]:
        return self._valid(REFERENCE, inode)


def _parts(second: Any) -> tuple[Any, ...]:
    return second if isinstance(second, tuple) else (second,)


def _of_flat(changed: tuple[int, Row | None] | None) -> dict[tuple[Any, ...], Row | None]:
    return {} if changed is None else {(LIVE,): changed[1]}
