"""Entries of the release before, which are statements of SQL: a standby applies them while that release leads."""

from __future__ import annotations

from typing import Any

import msgspec

from .image import ImageWriter
from .row_digest import DIGEST_KEY
from .statements import STATEMENTS


class _Statements(msgspec.Struct, frozen=True, array_like=True):
    schema: int
    statements: int
    tx: int
    epoch: int
    #: A statement's number and its values, in the order in which they were executed.
    executed: list[tuple[int, list[Any]]]


def apply_statements(
    writer: ImageWriter, content: bytes, journal_number: int, chunks: set[int], tables: set[str]
) -> None:
    """Apply an entry of the journal, and note what it touched. Raises apsw.Error, DamagedPage."""
    entry = msgspec.msgpack.decode(content, type=_Statements)
    execute = writer.connection.execute
    execute("BEGIN IMMEDIATE")
    digest = writer.digest_value
    try:
        for number, values in entry.executed:
            execute(STATEMENTS[number], values)
            chunk_at = _CHUNK_AT.get(number)
            if chunk_at is None:
                tables.add(_TABLE_OF[number])
            else:
                chunks.add(values[chunk_at])
        execute("UPDATE meta SET value = ? WHERE key = 'journal_number'", (journal_number,))
        execute("UPDATE meta SET value = ? WHERE key = ?", (writer.packed_digest(), DIGEST_KEY))
        execute("COMMIT")
    except BaseException:
        if writer.connection.in_transaction:
            execute("ROLLBACK")
        writer.digest_value = digest
        raise


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
