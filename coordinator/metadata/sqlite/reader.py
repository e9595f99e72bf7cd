"""Reading the SQLite store: look-ups by primary key, and scans of a range that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from types import TracebackType
from typing import Any, NamedTuple

import apsw
import msgspec

from peacefs.coordinator.metadata.model import (
    AdminDecision,
    ChunkRecord,
    Discarded,
    Enrolment,
    FileChunk,
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
    Snapshot,
)
from peacefs.coordinator.metadata.store import ROOT, Reader
from peacefs.coordinator.metadata.token_records import TokenRecords
from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.values.supervised_queries import QueryPhase

from .connections import Execute
from .schema import DIRECTORY_KIND, FILE_KIND, GC_FLOOR_HELD_FOR_LOST_COMMITS, LIVE
from .token_records import read_token_records

_KINDS = {FILE_KIND: InodeKind.FILE, DIRECTORY_KIND: InodeKind.DIRECTORY}

_INODE_COLUMNS = (
    "i.inode, i.kind, i.permission, i.owner, i.group_name, i.modified_ms, i.accessed_ms, "
    "i.length, i.block_bytes, i.replication, i.acl, i.attributes_tx"
)


#: So many names are followed by one statement; SQLite joins up to 64 tables.
_NAMES_AT_ONCE = 16


class _LookUps(NamedTuple):
    """The statements that find rows by what they are valid for."""

    valid: str
    child: str
    child_inode: str
    origin: str
    inode: str
    has_children: str
    children: str
    count_children: str
    references: str
    references_after: str
    attributes: str


@lru_cache(maxsize=64)
def _look_ups(valid: str) -> _LookUps:
    """`valid` is the condition on a row, in which {0} stands for its table."""
    of_entry, of_inode, of_reference, of_row = (valid.format(table) for table in ("e.", "i.", "r.", ""))
    # CROSS JOIN keeps the order of the tables: scan the entries, look each inode up.
    entries = f"FROM entry e CROSS JOIN inode i ON i.inode = e.inode AND {of_inode}"
    return _LookUps(
        valid=valid,
        child=f"SELECT inode FROM entry WHERE parent = ? AND name = ? AND {of_row}",
        child_inode=f"SELECT {_INODE_COLUMNS} {entries} WHERE e.parent = ? AND e.name = ? AND {of_entry}",
        origin=f"SELECT renamed_from, renamed_ms FROM entry WHERE parent = ? AND name = ? AND {of_row}",
        inode=f"SELECT {_INODE_COLUMNS} FROM inode i WHERE i.inode = ? AND {of_inode}",
        has_children=f"SELECT 1 FROM entry WHERE parent = ? AND {of_row} LIMIT 1",
        children=f"""
            SELECT e.name, {_INODE_COLUMNS} {entries}
            WHERE e.parent = ? AND e.name > ? AND {of_entry} ORDER BY e.name LIMIT ?""",
        count_children=f"""
            SELECT count(*) FROM (SELECT 1 FROM entry WHERE parent = ? AND name > ? AND {of_row} LIMIT ?)""",
        references=f"""
            SELECT r.chunk, c.version, r.length FROM reference r CROSS JOIN chunk c ON c.chunk = r.chunk
            WHERE r.inode = ? AND {of_reference} ORDER BY r.position""",
        references_after=f"""
            SELECT r.position, r.chunk, c.version, r.length FROM reference r
            CROSS JOIN chunk c ON c.chunk = r.chunk
            WHERE r.inode = ? AND r.position > ? AND {of_reference} ORDER BY r.position LIMIT ?""",
        attributes=f"SELECT name, value FROM attribute WHERE inode = ? AND {of_row} ORDER BY name",
    )


@lru_cache(maxsize=64)
def _following(valid: str, names: int) -> str:
    """Leads from an inode (?1) by so many names: a column for each, NULL where it does not exist, and the last."""
    numbers = range(1, names + 1)
    joins = "".join(
        f" LEFT JOIN entry e{n} ON e{n}.parent = {f'e{n - 1}.inode' if n > 1 else '?1'}"
        f" AND e{n}.name = ?{n + 1} AND {valid.format(f'e{n}.')}"
        for n in numbers
    )
    columns = [f"e{n}.inode" for n in numbers]
    last = f"coalesce({', '.join([*columns[::-1], '?1', 'NULL'])})"
    return f"""
        SELECT {", ".join([*columns, _INODE_COLUMNS])} FROM (SELECT 1){joins}
        JOIN inode i ON i.inode = {last} AND {valid.format("i.")}"""


@lru_cache(maxsize=64)
def _passing_through(valid: str, names: int) -> str:
    """The same with all columns of all inodes, that from which it leads (?1) among them."""
    numbers = range(1, names + 1)
    joins = "".join(
        f" LEFT JOIN entry e{n} ON e{n}.parent = i{n - 1}.inode AND e{n}.name = ?{n + 1}"
        f" AND {valid.format(f'e{n}.')}"
        f" LEFT JOIN inode i{n} ON i{n}.inode = e{n}.inode AND {valid.format(f'i{n}.')}"
        for n in numbers
    )
    columns = ", ".join(_INODE_COLUMNS.replace("i.", f"i{n}.") for n in (0, *numbers))
    return f"SELECT {columns} FROM inode i0{joins} WHERE i0.inode = ?1 AND {valid.format('i0.')}"


_NOW = _look_ups(f"{{0}}to_tx = {LIVE}")
_SNAPSHOTS = "SELECT name, at_tx, created_ms FROM snapshot WHERE directory = ?"
_ENTRY_OF = f"SELECT parent, name FROM entry WHERE inode = ? AND to_tx = {LIVE}"
_ENTRIES = f"""
    SELECT parent, name, inode FROM entry WHERE (parent, name) > (?, ?) AND to_tx = {LIVE}
    ORDER BY parent, name LIMIT ?"""
_QUOTA = "SELECT names_max, bytes_max, names, bytes FROM quota WHERE directory = ?"
_RUN_COLUMNS = "number, user, host, pid, since_ms, ended_ms"
_RUN = f"SELECT {_RUN_COLUMNS} FROM run WHERE directory = ?"
_RUNS = f"SELECT directory, {_RUN_COLUMNS} FROM run WHERE directory > ? ORDER BY directory LIMIT ?"
_TREE_USAGE = f"""
    WITH RECURSIVE below (inode, kind, bytes) AS (
        SELECT inode, kind, length * replication FROM inode WHERE inode = ? AND to_tx = {LIVE}
        UNION ALL
        SELECT i.inode, i.kind, i.length * i.replication FROM below b
            CROSS JOIN entry e ON e.parent = b.inode AND e.to_tx = {LIVE}
            CROSS JOIN inode i ON i.inode = e.inode AND i.to_tx = {LIVE}
        WHERE b.kind = {DIRECTORY_KIND})
    SELECT count(*), coalesce(sum(bytes), 0) FROM below"""
_SUPERVISED_QUERIES = """
    SELECT name, user, is_superuser, command, checkpoint, nodes, restarts_max, phase, agent, process, run,
        location, restarts, reason, changed_ms,
        EXISTS (SELECT 1 FROM supervised_standby s WHERE s.name = supervised_query.name)
    FROM supervised_query ORDER BY name"""
_OF_REFERENCES = "FROM reference WHERE (inode, position, to_tx) > (?, ?, ?)"
_REFERENCE_AFTER = (
    f"SELECT inode, position, to_tx {_OF_REFERENCES} ORDER BY inode, position, to_tx LIMIT 1 OFFSET ?"
)
_REFERRERS = f"""
    SELECT DISTINCT inode {_OF_REFERENCES} AND (inode, position, to_tx) <= (?, ?, ?)
    AND chunk = ? AND to_tx = {LIVE}"""
CHUNK_COLUMNS = "chunk, version, length, replication, hint"
_CHUNK = f"SELECT {CHUNK_COLUMNS} FROM chunk WHERE chunk = ?"
_CHUNKS = f"SELECT {CHUNK_COLUMNS} FROM chunk WHERE chunk > ? ORDER BY chunk LIMIT ?"


def _inode(row: Sequence[Any]) -> Inode:
    # The same as `Inode._make`, done here: a call with so many arguments takes as long as a look-up of the row.
    return tuple.__new__(Inode, (row[0], _KINDS[row[1]], *row[2:]))


def chunk_record(row: Sequence[Any]) -> ChunkRecord:
    chunk, version, length, replication, hint = row
    return ChunkRecord(chunk, version, length, replication, _hint(hint))


def _hint(text: str) -> tuple[NodeId, ...]:
    return msgspec.json.decode(text, type=tuple[NodeId, ...])


def _query(row: Sequence[Any]) -> QueryRecord:
    name, user, is_superuser, command, checkpoint, nodes, restarts_max, phase, *progress, has_standby = row
    return QueryRecord(
        name,
        user,
        bool(is_superuser),
        msgspec.json.decode(command, type=tuple[str, ...]),
        checkpoint,
        msgspec.json.decode(nodes, type=tuple[str, ...]),
        restarts_max,
        QueryPhase(phase),
        *(*progress, bool(has_standby)),
    )


class _View:
    """A read transaction: BEGIN takes nothing, the first read fixes what all the others see."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._execute = connection.execute
        self._depth = 0

    def __enter__(self) -> None:
        if self._depth == 0:
            self._execute("BEGIN")
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._execute("COMMIT")


class SqliteReader(Reader):
    """Look-ups on one connection."""

    _sql = _NOW

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._execute: Execute = connection.execute
        self._view = _View(connection)

    def view(self) -> AbstractContextManager[None]:
        return self._view

    def follow(self, names: Sequence[str]) -> tuple[list[InodeId], Inode]:
        passed = [self.root]
        for start in range(0, max(len(names), 1), _NAMES_AT_ONCE):
            piece = names[start : start + _NAMES_AT_ONCE]
            row = self._execute(_following(self._sql.valid, len(piece)), (passed[-1], *piece)).fetchone()
            found = [inode for inode in row[: len(piece)] if inode is not None]
            passed += found
            if len(found) < len(piece):
                break
        return passed, _inode(row[len(piece) :])

    def pass_through(self, names: Sequence[str]) -> list[Inode]:
        passed: list[Inode] = []
        for start in range(0, max(len(names), 1), _NAMES_AT_ONCE):
            piece = names[start : start + _NAMES_AT_ONCE]
            first = passed.pop().inode if passed else self.root
            row = self._execute(_passing_through(self._sql.valid, len(piece)), (first, *piece)).fetchone()
            width = len(row) // (len(piece) + 1)
            rows = (row[at : at + width] for at in range(0, len(row), width))
            passed += [_inode(each) for each in rows if each[0] is not None]
            if len(passed) <= start + len(piece):
                break
        return passed

    def child(self, parent: InodeId, name: str) -> InodeId | None:
        row = self._execute(self._sql.child, (parent, name)).fetchone()
        return row[0] if row else None

    def child_inode(self, parent: InodeId, name: str) -> Inode | None:
        row = self._execute(self._sql.child_inode, (parent, name)).fetchone()
        return _inode(row) if row else None

    def origin(self, parent: InodeId, name: str) -> Origin | None:
        row = self._execute(self._sql.origin, (parent, name)).fetchone()
        return Origin(*row) if row and row[0] is not None else None

    def inode(self, inode: InodeId) -> Inode | None:
        row = self._execute(self._sql.inode, (inode,)).fetchone()
        return _inode(row) if row else None

    def has_children(self, directory: InodeId) -> bool:
        return self._execute(self._sql.has_children, (directory,)).fetchone() is not None

    def children(self, directory: InodeId, after: str, limit: int) -> list[tuple[str, Inode]]:
        rows = self._execute(self._sql.children, (directory, after, limit)).fetchall()
        return [(row[0], _inode(row[1:])) for row in rows]

    def entries(self, parent: InodeId, name: str, limit: int) -> list[tuple[InodeId, str, InodeId]]:
        return self._execute(_ENTRIES, (parent, name, limit)).fetchall()

    def count_children(self, directory: InodeId, after: str, limit: int) -> int:
        return int(self._execute(self._sql.count_children, (directory, after, limit)).fetchone()[0])

    def references(self, inode: InodeId) -> list[FileChunk]:
        return [FileChunk(*row) for row in self._execute(self._sql.references, (inode,)).fetchall()]

    def references_after(self, inode: InodeId, position: int, limit: int) -> list[tuple[int, FileChunk]]:
        rows = self._execute(self._sql.references_after, (inode, position, limit)).fetchall()
        return [(row[0], FileChunk(*row[1:])) for row in rows]

    def reference_count(self, chunk: ChunkId) -> int:
        row = self._execute("SELECT referrers FROM chunk WHERE chunk = ?", (chunk,)).fetchone()
        return row[0] if row else 0

    def referrers(
        self, chunk: ChunkId, after: tuple[int, ...], limit: int
    ) -> tuple[list[InodeId], tuple[int, ...]]:
        begin = after or (-1, -1, -1)
        last = self._execute(_REFERENCE_AFTER, (*begin, limit - 1)).fetchone()
        end = tuple(last) if last else (LIVE, LIVE, LIVE)
        rows = self._execute(_REFERRERS, (*begin, *end, chunk)).fetchall()
        return [row[0] for row in rows], tuple(last) if last else ()

    def attributes(self, inode: InodeId) -> dict[str, bytes]:
        return dict(self._execute(self._sql.attributes, (inode,)).fetchall())

    def chunk(self, chunk: ChunkId) -> ChunkRecord | None:
        row = self._execute(_CHUNK, (chunk,)).fetchone()
        return chunk_record(row) if row else None

    def chunks(self, after: ChunkId, limit: int) -> list[ChunkRecord]:
        return [chunk_record(row) for row in self._execute(_CHUNKS, (after, limit)).fetchall()]

    def answer(self, request: str) -> bytes | None:
        row = self._execute("SELECT answer FROM request WHERE request = ?", (request,)).fetchone()
        return row[0] if row else None

    def lease(self, inode: InodeId) -> Lease | None:
        row = self._execute("SELECT number, holder FROM lease WHERE inode = ?", (inode,)).fetchone()
        return Lease(*row) if row else None

    def next_discarded(self) -> Discarded | None:
        row = self._execute("SELECT inode, at_tx FROM discarded ORDER BY inode LIMIT 1").fetchone()
        return Discarded(*row) if row else None

    def decisions(self) -> dict[NodeId, AdminDecision]:
        rows = self._execute("SELECT node, mode, until_ms FROM datanode").fetchall()
        return {node: AdminDecision(Mode(mode), until_ms) for node, mode, until_ms in rows}

    def enrolments(self) -> dict[NodeId, Enrolment]:
        rows = self._execute("SELECT node, public_key, enrolled_ms, revoked_ms FROM credential").fetchall()
        return {node: Enrolment(*rest) for node, *rest in rows}

    def supervised_queries(self) -> list[QueryRecord]:
        return [_query(row) for row in self._execute(_SUPERVISED_QUERIES).fetchall()]

    def token_records(self) -> TokenRecords:
        return read_token_records(self._execute)

    def at(self, at_tx: int, root: InodeId) -> Reader:
        return PastReader(self._connection, self.view(), at_tx, root)

    def allows_snapshots(self, directory: InodeId) -> bool:
        row = self._execute("SELECT 1 FROM snapshot_directory WHERE directory = ?", (directory,)).fetchone()
        return row is not None

    def snapshot_directories(self) -> list[InodeId]:
        return [row[0] for row in self._execute("SELECT directory FROM snapshot_directory").fetchall()]

    def snapshots(self, directory: InodeId) -> list[Snapshot]:
        rows = self._execute(f"{_SNAPSHOTS} ORDER BY name", (directory,)).fetchall()
        return [Snapshot(*row) for row in rows]

    def snapshot(self, directory: InodeId, name: str) -> Snapshot | None:
        row = self._execute(f"{_SNAPSHOTS} AND name = ?", (directory, name)).fetchone()
        return Snapshot(*row) if row else None

    def ancestors(self, inode: InodeId) -> list[tuple[InodeId, str]]:
        found: list[tuple[InodeId, str]] = []
        while row := self._execute(_ENTRY_OF, (inode,)).fetchone():
            found.append(tuple(row))
            inode = row[0]
        return found[::-1]

    def is_in_tree(self, inode: InodeId) -> bool:
        while inode != ROOT:
            row = self._execute(_ENTRY_OF, (inode,)).fetchone()
            if row is None:
                return False
            inode = row[0]
        return True

    def quota(self, directory: InodeId) -> Quota | None:
        row = self._execute(_QUOTA, (directory,)).fetchone()
        return Quota(row[0], row[1], NamespaceUsage(*row[2:])) if row else None

    def quota_directories(self) -> frozenset[InodeId]:
        return frozenset(row[0] for row in self._execute("SELECT directory FROM quota").fetchall())

    def run(self, directory: InodeId) -> RecordedRun | None:
        row = self._execute(_RUN, (directory,)).fetchone()
        return RecordedRun(*row) if row else None

    def runs(self, after: InodeId, limit: int) -> list[tuple[InodeId, RecordedRun]]:
        return [(row[0], RecordedRun(*row[1:])) for row in self._execute(_RUNS, (after, limit)).fetchall()]

    def tree_usage(self, top: InodeId) -> NamespaceUsage:
        return NamespaceUsage(*self._execute(_TREE_USAGE, (top,)).fetchone())

    def last_tx(self) -> int:
        return int(self.meta("last_tx"))

    def floor(self) -> ChunkId:
        return int(self.meta("floor"))

    def gc_floor_held(self) -> bool:
        return bool(self.meta("floor_held"))

    def is_kept(self, chunk: ChunkId) -> bool:
        return self._execute("SELECT 1 FROM kept_chunk WHERE chunk = ?", (chunk,)).fetchone() is not None

    def lacks_commits(self) -> bool:
        return bool(self.meta("floor_held") == GC_FLOOR_HELD_FOR_LOST_COMMITS)

    def meta(self, key: str) -> Any:
        """A value of the table of single values."""
        return self._execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()[0]

    def close(self) -> None:
        self._connection.close()


class PastReader(SqliteReader):
    """Read the state as it was after a transaction; right only below a directory with a snapshot of then."""

    def __init__(
        self, connection: apsw.Connection, view: AbstractContextManager[None], at_tx: int, root: InodeId
    ) -> None:
        super().__init__(connection)
        self._shared_view = view
        self._sql = _look_ups(f"{{0}}to_tx > {at_tx} AND {{0}}from_tx <= {at_tx}")
        self.root = root

    def view(self) -> AbstractContextManager[None]:
        return self._shared_view
