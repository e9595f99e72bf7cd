"""Applies journal entries of the previous release, which contain SQL statements, while that release leads."""

from __future__ import annotations

from typing import Any

import msgspec

from .image import ImageWriter
from .statements import STATEMENTS


class _Statements(msgspec.Struct, frozen=True, array_like=True):
    schema: int
    statements: int
    tx: int
    epoch: int
    #: The number and the values of each statement, in the order of execution.
    executed: list[tuple[int, list[Any]]]


def apply_statements(
    writer: ImageWriter, content: bytes, journal_number: int, chunks: set[int], tables: set[str]
) -> None:
    """Apply an entry of the journal. Add the chunks and tables that it changes to `chunks` and `tables`.

    Raises apsw.Error, DamagedPage.
    """
    entry = msgspec.msgpack.decode(content, type=_Statements)
    with writer.transaction() as execute:
        for number, values in entry.executed:
            execute(STATEMENTS[number], values)
            chunk_at = _CHUNK_AT.get(number)
            if chunk_at is None:
                tables.add(_TABLE_OF[number])
            else:
                chunks.add(values[chunk_at])
        execute("UPDATE meta SET value = ? WHERE key = 'journal_number'", (journal_number,))


def _table_of(statement: str) -> str:
    words = statement.replace(" OR REPLACE", "").replace(" OR IGNORE", "").split()
    return words[1] if words[0] == "UPDATE" else words[2]


_TABLE_OF = [_table_of(statement) for statement in STATEMENTS]
#: For statements on chunks, the index of the chunk among the values.
_CHUNK_AT = {
    number: 1 if statement.startswith("UPDATE chunk SET replication") else 0
    for number, statement in enumerate(STATEMENTS)
    if _TABLE_OF[number] == "chunk"
}
