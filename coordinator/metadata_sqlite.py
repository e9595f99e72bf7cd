"""The metadata in an SQLite file next to the coordinator. Together with `metadata_schema` all SQL there is.

One connection writes (WAL, synchronous=FULL: a commit is on the disk when it returns), readers have connections
of their own. Statements are compiled once, by Python's statement cache, and look things up by primary key only.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from peacefs.protocol.ids import ChunkId, NodeId, Numbering

from . import metadata_file
from .metadata import Discarded, Inode, InodeId, Metadata, MetadataFault, Origin, Outcome, Reader, Transaction
from .metadata_schema import DIRECTORY_KIND, FILE_KIND, LIVE, fill, migrate
from .records import ChunkRecord, FileChunk, Kind

_KINDS = {FILE_KIND: Kind.FILE, DIRECTORY_KIND: Kind.DIRECTORY}
_KIND_NUMBERS = {kind: number for number, kind in _KINDS.items()}

_CACHE_KIB = 64 * 1024
_STATEMENTS = 256

_CHILD = f"SELECT inode FROM entry WHERE parent = ? AND name = ? AND to_tx = {LIVE}"
_ORIGIN = f"SELECT renamed_from, renamed_ms FROM entry WHERE parent = ? AND name = ? AND to_tx = {LIVE}"
_INODE_COLUMNS = (
    "i.inode, i.kind, i.permission, i.owner, i.group_name, i.modified_ms, i.accessed_ms, "
    "i.length, i.block_bytes, i.replication"
)
_INODE = f"SELECT {_INODE_COLUMNS} FROM inode i WHERE i.inode = ? AND i.to_tx = {LIVE}"
_HAS_CHILDREN = f"SELECT 1 FROM entry WHERE parent = ? AND to_tx = {LIVE} LIMIT 1"
# CROSS JOIN keeps the order of the tables: scan the entries, look each inode up.
_CHILDREN = f"""
    SELECT e.name, {_INODE_COLUMNS} FROM entry e CROSS JOIN inode i ON i.inode = e.inode AND i.to_tx = {LIVE}
    WHERE e.parent = ? AND e.name > ? AND e.to_tx = {LIVE} ORDER BY e.name LIMIT ?"""
_COUNT_CHILDREN = f"""
    SELECT count(*) FROM (SELECT 1 FROM entry WHERE parent = ? AND name > ? AND to_tx = {LIVE} LIMIT ?)"""
_REFERENCES = f"""
    SELECT r.chunk, c.version, r.length FROM reference r CROSS JOIN chunk c ON c.chunk = r.chunk
    WHERE r.inode = ? AND r.to_tx = {LIVE} ORDER BY r.position"""
_CHUNK_COLUMNS = "chunk, version, length, replication, hint"
_CHUNK = f"SELECT {_CHUNK_COLUMNS} FROM chunk WHERE chunk = ?"
_CHUNKS = f"SELECT {_CHUNK_COLUMNS} FROM chunk WHERE chunk > ? ORDER BY chunk LIMIT ?"

_ADD_INODE = f"INSERT INTO inode VALUES (?, {LIVE}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_CHANGE_INODE = f"""
    UPDATE inode SET permission = ?, owner = ?, group_name = ?, modified_ms = ?, accessed_ms = ?,
        length = ?, block_bytes = ?, replication = ? WHERE inode = ? AND to_tx = {LIVE}"""
_TOUCH = f"UPDATE inode SET modified_ms = max(modified_ms, ?) WHERE inode = ? AND to_tx = {LIVE}"
_COPY_INODE = f"""
    INSERT INTO inode
    SELECT inode, ?, from_tx, kind, permission, owner, group_name, modified_ms, accessed_ms,
        length, block_bytes, replication FROM inode WHERE inode = ? AND to_tx = {LIVE}"""
_ADD_ENTRY = f"INSERT INTO entry VALUES (?, ?, {LIVE}, ?, ?, ?, ?)"
_ADD_REFERENCE = f"INSERT INTO reference VALUES (?, ?, {LIVE}, ?, ?, ?)"
_ADD_CHUNK = "INSERT OR IGNORE INTO chunk VALUES (?, ?, ?, ?, ?, 0, ?)"
_REFERENCES_TO_DROP = f"""
    SELECT position, chunk, from_tx FROM reference WHERE inode = ? AND to_tx = {LIVE} ORDER BY position LIMIT ?"""


def _inode(row: Sequence[Any]) -> Inode:
    return Inode(row[0], _KINDS[row[1]], *row[2:])


def _chunk(row: Sequence[Any]) -> ChunkRecord:
    chunk, version, length, replication, hint = row
    return ChunkRecord(chunk, version, length, replication, _hint(hint))


def _hint(text: str) -> tuple[NodeId, ...]:
    return msgspec.json.decode(text, type=tuple[NodeId, ...])


class _View:
    """A read transaction: BEGIN takes nothing, the first read fixes what all the others see."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute

    def __enter__(self) -> None:
        self._execute("BEGIN")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._execute("COMMIT")


class SqliteReader(Reader):
    """Look-ups on one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._view = _View(connection)

    def view(self) -> AbstractContextManager[None]:
        return self._view

    def child(self, parent: InodeId, name: str) -> InodeId | None:
        row = self._execute(_CHILD, (parent, name)).fetchone()
        return row[0] if row else None

    def origin(self, parent: InodeId, name: str) -> Origin | None:
        row = self._execute(_ORIGIN, (parent, name)).fetchone()
        return Origin(*row) if row and row[0] is not None else None

    def inode(self, inode: InodeId) -> Inode | None:
        row = self._execute(_INODE, (inode,)).fetchone()
        return _inode(row) if row else None

    def has_children(self, directory: InodeId) -> bool:
        return self._execute(_HAS_CHILDREN, (directory,)).fetchone() is not None

    def children(self, directory: InodeId, after: str, limit: int) -> list[tuple[str, Inode]]:
        rows = self._execute(_CHILDREN, (directory, after, limit)).fetchall()
        return [(row[0], _inode(row[1:])) for row in rows]

    def count_children(self, directory: InodeId, after: str, limit: int) -> int:
        return int(self._execute(_COUNT_CHILDREN, (directory, after, limit)).fetchone()[0])

    def references(self, inode: InodeId) -> list[FileChunk]:
        return [FileChunk(*row) for row in self._execute(_REFERENCES, (inode,)).fetchall()]

    def chunk(self, chunk: ChunkId) -> ChunkRecord | None:
        row = self._execute(_CHUNK, (chunk,)).fetchone()
        return _chunk(row) if row else None

    def chunks(self, after: ChunkId, limit: int) -> list[ChunkRecord]:
        return [_chunk(row) for row in self._execute(_CHUNKS, (after, limit)).fetchall()]

    def answer(self, request: str) -> bytes | None:
        row = self._execute("SELECT answer FROM request WHERE request = ?", (request,)).fetchone()
        return row[0] if row else None

    def next_discarded(self) -> Discarded | None:
        row = self._execute("SELECT inode, at_tx FROM discarded ORDER BY inode LIMIT 1").fetchone()
        return Discarded(*row) if row else None

    def epoch(self) -> int:
        return int(self._meta("epoch"))

    def floor(self) -> ChunkId:
        return int(self._meta("floor"))

    def cluster_id(self) -> str:
        return str(self._meta("cluster_id"))

    def last_tx(self) -> int:
        return int(self._meta("last_tx"))

    def _meta(self, key: str) -> Any:
        return self._execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()[0]

    def close(self) -> None:
        self._connection.close()


class SqliteTransaction(SqliteReader, Transaction):
    """Changes on the writing connection. One instance serves all requests, one after the other."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.tx = self.last_tx()
        #: Draws inode numbers; there is none before an epoch has begun.
        self.numbering: Numbering | None = None
        self._snapshots: list[int] | None = None

    def begin(self) -> None:
        """The next request begins, with a number of its own."""
        self.tx += 1
        self._snapshots = None

    def view(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def _is_kept(self, from_tx: int, at_tx: int) -> bool:
        """Whether a snapshot shows what was valid from `from_tx` and is no more since `at_tx`."""
        if self._snapshots is None:
            rows = self._execute("SELECT at_tx FROM snapshot ORDER BY at_tx").fetchall()
            self._snapshots = [row[0] for row in rows]
        oldest = bisect_left(self._snapshots, from_tx)
        return oldest < len(self._snapshots) and self._snapshots[oldest] < at_tx

    def _supersede(self, table: str, key: str, values: tuple[Any, ...], at_tx: int | None) -> None:
        """Deletes the live row of a table, or retires it if a snapshot shows it."""
        at_tx = at_tx or self.tx
        where = f"WHERE {key} AND to_tx = {LIVE}"
        row = self._execute(f"SELECT from_tx FROM {table} {where}", values).fetchone()
        assert row is not None, f"no live row in {table} for {values}"
        if self._is_kept(row[0], at_tx):
            self._execute(f"UPDATE {table} SET to_tx = ? {where}", (at_tx, *values))
        else:
            self._execute(f"DELETE FROM {table} {where}", values)

    def _keep_inode(self, inode: InodeId) -> None:
        """Before an inode is changed: leaves the old row behind if a snapshot shows it."""
        where = f"WHERE inode = ? AND to_tx = {LIVE}"
        row = self._execute(f"SELECT from_tx FROM inode {where}", (inode,)).fetchone()
        assert row is not None, f"inode {inode} is to be changed and does not exist"
        if self._is_kept(row[0], self.tx):
            self._execute(_COPY_INODE, (self.tx, inode))
            self._execute(f"UPDATE inode SET from_tx = ? {where}", (self.tx, inode))

    def add_inode(self, inode: Inode) -> InodeId:
        assert self.numbering is not None, "an epoch begins before anything is written"
        number = self.numbering.next()
        self._execute(_ADD_INODE, (number, self.tx, _KIND_NUMBERS[inode.kind], *inode[2:]))
        return number

    def change_inode(self, inode: Inode) -> None:
        self._keep_inode(inode.inode)
        self._execute(_CHANGE_INODE, (*inode[2:], inode.inode))

    def touch(self, directory: InodeId, now_ms: int) -> None:
        self._keep_inode(directory)
        self._execute(_TOUCH, (now_ms, directory))

    def remove_inode(self, inode: InodeId, at_tx: int | None = None) -> None:
        self._supersede("inode", "inode = ?", (inode,), at_tx)

    def add_entry(self, parent: InodeId, name: str, inode: InodeId, origin: Origin | None = None) -> None:
        self._execute(_ADD_ENTRY, (parent, name, self.tx, inode, *(origin or (None, None))))

    def remove_entry(self, parent: InodeId, name: str, at_tx: int | None = None) -> None:
        self._supersede("entry", "parent = ? AND name = ?", (parent, name), at_tx)

    def add_chunk(self, record: ChunkRecord, checksum: int) -> bool:
        hint = msgspec.json.encode(record.hint).decode()
        values = (record.chunk, record.version, record.length, checksum, record.replication, hint)
        return self._execute(_ADD_CHUNK, values).rowcount == 1

    def set_chunk_replication(self, chunk: ChunkId, replication: int) -> None:
        self._execute("UPDATE chunk SET replication = ? WHERE chunk = ?", (replication, chunk))

    def add_reference(self, inode: InodeId, position: int, chunk: ChunkId, length: int) -> None:
        self._execute(_ADD_REFERENCE, (inode, position, self.tx, chunk, length))
        self._execute("UPDATE chunk SET referrers = referrers + 1 WHERE chunk = ?", (chunk,))

    def drop_references(
        self, inode: InodeId, limit: int, at_tx: int | None = None
    ) -> tuple[int, list[ChunkRecord]]:
        at_tx = at_tx or self.tx
        rows = self._execute(_REFERENCES_TO_DROP, (inode, limit)).fetchall()
        where = f"WHERE inode = ? AND position = ? AND to_tx = {LIVE}"
        freed = []
        for position, chunk, from_tx in rows:
            if self._is_kept(from_tx, at_tx):
                self._execute(f"UPDATE reference SET to_tx = ? {where}", (at_tx, inode, position))
                continue
            self._execute(f"DELETE FROM reference {where}", (inode, position))
            freed += self._unrefer(chunk)
        return len(rows), freed

    def _unrefer(self, chunk: ChunkId) -> list[ChunkRecord]:
        """One reference less; the chunk itself when that was the last."""
        row = self._execute(f"SELECT {_CHUNK_COLUMNS}, referrers FROM chunk WHERE chunk = ?", (chunk,)).fetchone()
        if row[-1] > 1:
            self._execute("UPDATE chunk SET referrers = referrers - 1 WHERE chunk = ?", (chunk,))
            return []
        self._execute("DELETE FROM chunk WHERE chunk = ?", (chunk,))
        return [_chunk(row[:-1])]

    def discard(self, inode: InodeId, at_tx: int | None = None) -> None:
        self._execute("INSERT INTO discarded VALUES (?, ?)", (inode, at_tx or self.tx))

    def undiscard(self, inode: InodeId) -> None:
        self._execute("DELETE FROM discarded WHERE inode = ?", (inode,))

    def remember(self, request: str, answer: bytes, now_ms: int) -> None:
        self._execute("INSERT INTO request VALUES (NULL, ?, ?, ?)", (request, answer, now_ms))

    def forget_answers(self, before_ms: int, limit: int) -> int:
        rows = self._execute("SELECT number, at_ms FROM request ORDER BY number LIMIT ?", (limit,)).fetchall()
        old = list(itertools.takewhile(lambda row: row[1] < before_ms, rows))
        if old:
            self._execute("DELETE FROM request WHERE number <= ?", (old[-1][0],))
        return len(old)

    def raise_floor(self, floor: ChunkId) -> None:
        self._execute("UPDATE meta SET value = max(value, ?) WHERE key = 'floor'", (floor,))


def _is_fault_of_the_store(error: Exception) -> bool:
    """Whether SQLite failed at its work, as against a request that asked for what cannot be."""
    return isinstance(error, sqlite3.OperationalError | sqlite3.InternalError) or type(error) is sqlite3.DatabaseError


class SqliteMetadata(Metadata):
    """The store; made by `open` or, as the twin for simulations, by `in_memory`."""

    def __init__(self, writer: sqlite3.Connection, path: Path | None, lock: int | None) -> None:
        self._writer = writer
        self._path = path
        self._lock = lock
        self._transaction = SqliteTransaction(writer)
        self._guard = threading.Lock()
        self._fault: Exception | None = None
        self._readers: list[SqliteReader] = []
        self.cluster_id = self._transaction.cluster_id()

    @classmethod
    def open(cls, path: Path, *, owner: str) -> SqliteMetadata:
        """Opens the store at `path`, or makes it there with a root directory that belongs to `owner`.

        Raises StartupError, and has changed nothing, when another coordinator has it open, or when the file is
        foreign, damaged or of a newer peacefs.
        """
        lock = metadata_file.lock(path)
        try:
            if not path.exists():
                metadata_file.create(path, owner)
            metadata_file.verify(path)
            writer = _connect(path)
            writer.execute("PRAGMA journal_mode = WAL")
            writer.execute("PRAGMA synchronous = FULL")
            writer.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            migrate(writer)
            return cls(writer, path, lock)
        except BaseException:
            os.close(lock)
            raise

    @classmethod
    def in_memory(cls, *, owner: str = "peacefs", cluster_id: str = "in-memory") -> SqliteMetadata:
        """A store that lasts as long as this object. Its readers share the writing connection."""
        writer = _connect(":memory:")
        migrate(writer)
        fill(writer, cluster_id, owner)
        return cls(writer, None, None)

    def begin_epoch(self, at_least: int = 0) -> int:
        with self._guard, self._commit():
            epoch = max(self._transaction.epoch() + 1, at_least)
            self._writer.execute("UPDATE meta SET value = ? WHERE key = 'epoch'", (epoch,))
        self._transaction.numbering = Numbering(epoch)
        return epoch

    def commit(self, requests: Sequence[Callable[[Transaction], Any]]) -> list[Outcome]:
        with self._guard, self._commit():
            return [self._attempt(request) for request in requests]

    @contextlib.contextmanager
    def _commit(self) -> Iterator[None]:
        if self._fault is not None:
            raise MetadataFault(f"the metadata failed before: {self._fault}")
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            changes_before = self._writer.total_changes
            yield
            if self._writer.total_changes == changes_before:
                self._writer.execute("ROLLBACK")
                return
            self._writer.execute("UPDATE meta SET value = ? WHERE key = 'last_tx'", (self._transaction.tx,))
            self._writer.execute("COMMIT")
        except BaseException as error:
            # Of what was under way nothing is known; a later commit must not build upon it.
            self._fault = error if isinstance(error, Exception) else RuntimeError(repr(error))
            with contextlib.suppress(sqlite3.Error):
                self._writer.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise MetadataFault(f"the metadata cannot be written: {error}") from error
            raise

    def _attempt(self, request: Callable[[Transaction], Any]) -> Outcome:
        execute = self._writer.execute
        self._transaction.begin()
        execute("SAVEPOINT request")
        try:
            outcome = Outcome(request(self._transaction), None)
        except Exception as error:
            if _is_fault_of_the_store(error):
                raise
            execute("ROLLBACK TO request")
            outcome = Outcome(None, error)
        execute("RELEASE request")
        return outcome

    def reader(self) -> SqliteReader:
        if self._path is None:
            return SqliteReader(self._writer)
        connection = _connect(self._path)
        connection.execute("PRAGMA query_only = ON")
        reader = SqliteReader(connection)
        with self._guard:
            self._readers.append(reader)
        return reader

    def close(self) -> None:
        with self._guard:
            for reader in self._readers:
                reader.close()
            self._readers.clear()
            self._writer.close()
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None


def _connect(target: Path | str) -> sqlite3.Connection:
    return sqlite3.connect(
        target, isolation_level=None, check_same_thread=False, cached_statements=_STATEMENTS, timeout=5.0
    )
