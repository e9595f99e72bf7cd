"""Reading the SQLite store: look-ups by primary key, and scans of a range that is asked for."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import msgspec

from peacefs.protocol.ids import ChunkId, NodeId

from .metadata import Discarded, Inode, InodeId, Lease, Origin, Reader
from .metadata_schema import DIRECTORY_KIND, FILE_KIND, LIVE
from .records import ChunkRecord, Decision, FileChunk, Kind, Mode

_KINDS = {FILE_KIND: Kind.FILE, DIRECTORY_KIND: Kind.DIRECTORY}

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
_REFERENCES_AFTER = f"""
    SELECT r.position, r.chunk, c.version, r.length FROM reference r CROSS JOIN chunk c ON c.chunk = r.chunk
    WHERE r.inode = ? AND r.position > ? AND r.to_tx = {LIVE} ORDER BY r.position LIMIT ?"""
CHUNK_COLUMNS = "chunk, version, length, replication, hint"
_CHUNK = f"SELECT {CHUNK_COLUMNS} FROM chunk WHERE chunk = ?"
_CHUNKS = f"SELECT {CHUNK_COLUMNS} FROM chunk WHERE chunk > ? ORDER BY chunk LIMIT ?"


def _inode(row: Sequence[Any]) -> Inode:
    return Inode(row[0], _KINDS[row[1]], *row[2:])


def chunk_record(row: Sequence[Any]) -> ChunkRecord:
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

    def references_after(self, inode: InodeId, position: int, limit: int) -> list[tuple[int, FileChunk]]:
        rows = self._execute(_REFERENCES_AFTER, (inode, position, limit)).fetchall()
        return [(row[0], FileChunk(*row[1:])) for row in rows]

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

    def decisions(self) -> dict[NodeId, Decision]:
        rows = self._execute("SELECT node, mode, until_ms FROM datanode").fetchall()
        return {node: Decision(Mode(mode), until_ms) for node, mode, until_ms in rows}

    def floor(self) -> ChunkId:
        return int(self.meta("floor"))

    def floor_held(self) -> bool:
        return bool(self.meta("floor_held"))

    def meta(self, key: str) -> Any:
        """A value of the table of single values."""
        return self._execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()[0]

    def close(self) -> None:
        self._connection.close()
