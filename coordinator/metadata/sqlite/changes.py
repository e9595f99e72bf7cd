"""The changes of a commit: recorded where they are written, carried by the journal, applied to another store.

What one store's connection was told to change, told to a store that was the same before, makes it the same again:
nothing in SQL here depends on anything but the store and the values. Reads are not recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from .connections import Execute, Rows
from .schema import MIGRATIONS
from .statements import STATEMENTS

_READS = ("SELECT", "WITH")
_NUMBERS = {statement: number for number, statement in enumerate(STATEMENTS)}
_READ = -1
_SET_META = _NUMBERS["UPDATE meta SET value = ? WHERE key = ?"]


class Changes(msgspec.Struct, frozen=True, array_like=True):
    """One commit. `schema` and `statements` are the versions that its reader has to know."""

    schema: int
    statements: int
    #: The last transaction of the commit, and the coordinator's epoch.
    tx: int
    epoch: int
    #: A statement's number and its values, in the order in which they were executed.
    executed: list[tuple[int, list[Any]]]

    @property
    def sets_digest(self) -> bool:
        """Return whether it says which digest the store has afterwards; those of older coordinators do not."""
        return any(number == _SET_META and values[1] == "digest" for number, values in self.executed)


class NewerEntry(Exception):
    """An entry was written by a coordinator that knows more than this one: upgrade this one."""


class Recorder:
    """Stands before a connection's `execute` and keeps what is changed until the commit takes it."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._execute: Execute = connection.execute
        self._executed: list[tuple[int, Sequence[Any]]] = []
        #: Statements as they are written in the code.
        self._known: dict[str, int] = {}

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        number = self._known.get(statement)
        if number is None:
            number = self._known[statement] = _number_of(statement)
        cursor = self._execute(statement, values)
        if number != _READ:
            self._executed.append((number, values))
        return cursor

    def mark(self) -> int:
        """Return a place to which `cut` may go back."""
        return len(self._executed)

    def cut(self, mark: int) -> None:
        """Forget what was recorded since: it was rolled back."""
        del self._executed[mark:]

    def take(self, tx: int, epoch: int) -> bytes:
        """Return what was recorded, for the journal, and begin anew."""
        taken = Changes(
            len(MIGRATIONS),
            len(STATEMENTS),
            tx,
            epoch,
            [(number, list(values)) for number, values in self._executed],
        )
        self._executed.clear()
        return msgspec.msgpack.encode(taken)


def _number_of(statement: str) -> int:
    words = " ".join(statement.split())
    if words.startswith(_READS):
        return _READ
    number = _NUMBERS.get(words)
    assert number is not None, f"a statement that is not among those of `statements`: {words}"
    return number


def read_changes(entry: bytes) -> Changes:
    """Return the changes of an entry. Raises NewerEntry, and MsgspecError for what is none."""
    schema, statements, *_rest = msgspec.msgpack.decode(entry, type=tuple[int, int, Any, Any, Any])
    if schema > len(MIGRATIONS) or statements > len(STATEMENTS):
        raise NewerEntry(
            f"the journal was written by a newer peacefs (schema {schema}, this one knows {len(MIGRATIONS)}): "
            "upgrade this coordinator. Standbys are upgraded before the leader"
        )
    return msgspec.msgpack.decode(entry, type=Changes)


class TouchedRows:
    """The rows of which parts of a coordinator keep a picture in memory, as they are touched by changes."""

    def __init__(self) -> None:
        #: Chunks that came, went, or have another replication.
        self.chunks: set[int] = set()
        #: Other tables that were touched.
        self.tables: set[str] = set()

    def note(self, number: int, values: Sequence[Any]) -> None:
        chunk_at = _CHUNK_AT.get(number)
        if chunk_at is not None:
            self.chunks.add(values[chunk_at])
        else:
            self.tables.add(_TABLE_OF[number])


def apply(connection: apsw.Connection, changes: Changes, touched: TouchedRows) -> None:
    """Execute the changes of an entry, within a transaction of the caller's."""
    for number, values in changes.executed:
        connection.execute(STATEMENTS[number], values)
        touched.note(number, values)


def _table_of(statement: str) -> str:
    words = statement.replace(" OR REPLACE", "").replace(" OR IGNORE", "").split()
    return words[1] if words[0] == "UPDATE" else words[2]


_TABLE_OF = [_table_of(statement) for statement in STATEMENTS]
#: For statements on chunks: which of the values is the chunk.
_CHUNK_AT = {
    number: 1 if statement.startswith("UPDATE chunk SET replication") else 0
    for number, statement in enumerate(STATEMENTS)
    if _TABLE_OF[number] == "chunk"
}
