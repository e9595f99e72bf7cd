"""The log on the disk of a simulated coordinator, and a model of the rows that its entries produce.

The model consists of dictionaries, which change only when an entry is appended. The tests compare with the model
what a coordinator answers, orders, or finds after a restart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import apsw

from peacefs.coordinator.metadata.log.entry import decode_content
from peacefs.coordinator.metadata.log.memory import MemoryLog
from peacefs.coordinator.metadata.model import ChunkRecord
from peacefs.coordinator.metadata.row_store import Rows
from peacefs.coordinator.metadata.sqlite.store import MetadataInMemory
from peacefs.coordinator.metadata.tables import CHUNK, ENTRY, KEPT_CHUNK, LIVE, META, TABLES, Row
from peacefs.protocol.ids import ChunkId

#: Rows of the table `meta` that record up to which entry an image is complete.
_OF_THE_IMAGE = frozenset({"log_number", "log_chain", "digest"})
Tables = list[dict[tuple[Any, ...], Row]]


class DurableLog(MemoryLog):
    """A `MemoryLog` that outlives crashes of the coordinator."""

    def __init__(self, image: apsw.Connection) -> None:
        """Start an empty log; `image` contains everything so far."""
        super().__init__()
        self.tables = _tables_of(image)
        #: The number of the last entry that was ever appended.
        self.last: int = image.execute("SELECT value FROM meta WHERE key = 'log_number'").get
        #: Called before an entry is appended, when it may raise, and afterwards.
        self.before: Callable[[], object] = lambda: None
        self.appended: Callable[[], object] = lambda: None

    def append(self, number: int, content: bytes) -> int:
        assert number == self.last + 1, f"entry {number} was appended after {self.last}"
        self.before()
        chain = super().append(number, content)
        self.last = number
        for table, row in decode_content(content).changes:
            if table >= 0:
                self.tables[table][row[: len(TABLES[table].keys)]] = tuple(row)
            else:
                self.tables[~table].pop(tuple(row), None)
        self.appended()
        return chain

    def meta(self, key: str) -> Any:
        return self.tables[META][key,][1]

    def chunk(self, chunk: ChunkId) -> ChunkRecord | None:
        row = self.tables[CHUNK].get((chunk,))
        return None if row is None else ChunkRecord(row[0], row[1], row[2], row[4], ())

    def refers_to(self, chunk: ChunkId, version: int) -> bool:
        """Return whether a file refers to this chunk version, or a writer was told that the chunk is kept."""
        record = self.chunk(chunk)
        return (record is not None and record.version == version) or (chunk,) in self.tables[KEPT_CHUNK]

    def digest(self) -> bytes:
        """Return a digest of all rows, for comparisons with another store."""
        rows = [sorted(map(repr, table.values())) for table in self.tables]
        return hashlib.blake2b(repr(rows).encode(), digest_size=16).digest()

    def names_in(self, directory: int) -> set[str]:
        return {name for parent, name in self.tables[ENTRY] if parent == directory}

    def check_found(self, metadata: MetadataInMemory) -> None:
        """Compare an open store with the model. Call it after a restart, before any change."""
        _check_equal(self.tables, metadata.rows)
        # Read through another store object, so that the coordinator's caches do not change.
        looking = MetadataInMemory(metadata.image, self)
        directories = {parent for parent, _ in self.tables[ENTRY]}
        for directory in directories:
            assert set(looking.rows.names_after(directory, "", 1_000_000)) == self.names_in(directory)
        for (parent, name), row in self.tables[ENTRY].items():
            assert looking.rows.place(row[4]) == (parent, name)

    def check_told(self, number: int) -> None:
        """Check that entry `number` is in the log. Call it when a client gets an answer that depends on it."""
        assert number <= self.last, f"entry {number} was told of while the log had {self.last}"


def _tables_of(image: apsw.Connection) -> Tables:
    tables: Tables = []
    for table in TABLES:
        where = f" WHERE to_tx = {LIVE}" if table.is_live else f" WHERE to_tx != {LIVE}" if table.is_past else ""
        rows = image.execute(f"SELECT * FROM {table.name}{where}")
        tables.append({row[: len(table.keys)]: row for row in rows})
    return tables


def _check_equal(model: Tables, rows: Rows) -> None:
    """Compare the model with the rows of the image and the changed rows."""
    found = _tables_of(rows.image._connection)  # type: ignore[attr-defined]
    for number, table in enumerate(TABLES):
        for first, changed in rows.changed[number].items():
            inner = changed.items() if table.is_nested else [(None, changed)]
            for second, (_, row) in inner:
                key = (
                    (first,) if second is None else (first, *(second if isinstance(second, tuple) else (second,)))
                )
                if row is None:
                    found[number].pop(key, None)
                else:
                    found[number][key] = row
        expected = model[number]
        if number == META:
            found[number] = {key: row for key, row in found[number].items() if key[0] not in _OF_THE_IMAGE}
            expected = {key: row for key, row in expected.items() if key[0] not in _OF_THE_IMAGE}
        assert found[number] == expected, table
        if table.is_small and number != META:
            small = {key if isinstance(key, tuple) else (key,): row for key, row in rows.small[number].items()}
            assert small == expected, table
