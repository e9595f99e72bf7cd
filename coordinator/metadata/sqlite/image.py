"""Reads and writes the image, the SQLite file to which the entries of the log are applied."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import apsw

from peacefs.coordinator.metadata.log.entry import Content, decode_content
from peacefs.coordinator.metadata.log.segments import Position, read_entries
from peacefs.coordinator.metadata.tables import LIVE, META, TABLES, Row, Table

from .connections import DamagedPage, StoresDiffer, connect
from .row_digest import DIFFERS_KEY, DIGEST_BYTES, DIGEST_KEY, RowDigest

_CACHE_KIB = 64 * 1024
# SQLite copies its log to the database after 16 MiB. With rare copies, a page that changes often is written once.
_CHECKPOINT_PAGES = 4096


# A store with a journal records its digest after each such number of journal entries, and keeps this many digests.
digest_interval_entries: Final = 1000
digests_remembered_max: Final = 8
_DIGEST_ENTRY_BYTES = 8 + DIGEST_BYTES


#: An entry of the log: its number, its checksum in the chain, and its content.
Entry = tuple[int, int, Content]


class ImageReader:
    """Reads rows by key. Each statement sees the latest state of the image. For one thread."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._execute: Any = connection.execute
        self._connection = connection

    @classmethod
    def open(cls, path: Path) -> ImageReader:
        connection = connect(path)
        connection.execute("PRAGMA query_only = ON")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        return cls(connection)

    def one(self, table: Table, *key: Any) -> Row | None:
        return self._execute(_one(table), key).fetchone()  # type: ignore[no-any-return]

    def group(self, table: Table, first: Any) -> list[Row]:
        return self._execute(_group(table), (first,)).fetchall()  # type: ignore[no-any-return]

    def after(self, table: Table, first: Any, second: Any, limit: int) -> list[Row]:
        return self._execute(_after(table), (first, second, limit)).fetchall()  # type: ignore[no-any-return]

    def all(self, table: Table, after: Any, limit: int) -> list[Row]:
        return self._execute(_all(table), (after, limit)).fetchall()  # type: ignore[no-any-return]

    def query(self, statement: str, *values: Any) -> list[Row]:
        return self._execute(statement, values).fetchall()  # type: ignore[no-any-return]

    def position(self) -> Position:
        """Return the last entry of the log that was applied to the image."""
        meta = dict(self._execute("SELECT key, value FROM meta WHERE key IN ('log_number', 'log_chain')"))
        return Position(meta["log_number"], int.from_bytes(meta["log_chain"], "big"))

    def close(self) -> None:
        """Close the connection. If it is the last one, SQLite copies its log to the database."""
        with contextlib.suppress(DamagedPage):
            # SQLite does not copy a damaged page.
            self._connection.close()


def entries_behind(connection: apsw.Connection, store: Path) -> Iterator[Entry]:
    """Yield the entries in the log of a store that an image lacks. Raises LogDamaged, StartupError, apsw.Error."""
    cluster_id: str = connection.execute("SELECT value FROM meta WHERE key = 'cluster_id'").get
    for entry in read_entries(store, cluster_id, ImageReader(connection).position()):
        yield entry.number, entry.chain, decode_content(entry.content)


def _live(table: Table) -> str:
    return f" AND to_tx = {LIVE}" if table.is_live else ""


@lru_cache(maxsize=64)
def _one(table: Table) -> str:
    keys = " AND ".join(f"{key} = ?" for key in table.keys)
    return f"SELECT * FROM {table.name} WHERE {keys}{_live(table)}"


@lru_cache(maxsize=64)
def _group(table: Table) -> str:
    return f"SELECT * FROM {table.name} WHERE {table.keys[0]} = ?{_live(table)} ORDER BY {', '.join(table.keys)}"


@lru_cache(maxsize=64)
def _after(table: Table) -> str:
    first, second = table.keys[:2]
    return f"SELECT * FROM {table.name} WHERE {first} = ? AND {second} > ?{_live(table)} ORDER BY {second} LIMIT ?"


@lru_cache(maxsize=64)
def _all(table: Table) -> str:
    first = table.keys[0]
    return f"SELECT * FROM {table.name} WHERE {first} > ?{_live(table)} ORDER BY {first} LIMIT ?"


class ImageWriter:
    """Applies entries of the log, in order, in large transactions. For one thread."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self._digest = RowDigest(connection)
        self._number = ImageReader(connection).position().number

    @classmethod
    def open(cls, path: Path) -> ImageWriter:
        """Open an image for writing. Raises apsw.Error."""
        return cls(connect_writer(path))

    @property
    def number(self) -> int:
        """The last entry that was applied to the image."""
        return self._number

    def apply(self, entries: Iterable[Entry]) -> None:
        """Apply entries, given as (number, chain, content), in as few transactions as possible.

        Raises apsw.Error, DamagedPage, StoresDiffer; then the image has the entries up to `number`.
        """
        together = []
        for entry in entries:
            if entry[0] <= self._number:
                continue
            together.append(entry)
            journal_number = _journal_number(entry[2])
            if journal_number is not None and journal_number % digest_interval_entries == 0:
                self._apply(together, journal_number)
                together = []
        self._apply(together)

    def _apply(self, entries: Iterable[Entry], remembered: int | None = None) -> None:
        last: list[dict[Row, Row | None]] = [{} for _ in TABLES]
        number = chain = 0
        for entry in entries:
            number, chain, content = entry
            for table, row in content.changes:
                if table >= 0:
                    last[table][row[: len(TABLES[table].keys)]] = row
                else:
                    last[~table][row] = None
        if not number:
            return
        with self.transaction() as execute:
            # Delete first: if the answer of a request id was deleted, the same id may have a new answer.
            for table, rows in enumerate(last):
                if rows:
                    self.connection.executemany(
                        _deletion(table), [key for key, put in rows.items() if put is None]
                    )
            for table, rows in enumerate(last):
                if rows:
                    self.connection.executemany(
                        _insertion(table), [row for row in rows.values() if row is not None]
                    )
            set_meta = "UPDATE meta SET value = ? WHERE key = ?"
            execute(set_meta, (number, "log_number"))
            execute(set_meta, (chain.to_bytes(8, "big"), "log_chain"))
            if remembered is not None:
                self._remember_digest(remembered)
            said = last[META].get(("leader_digest",))
            differs_at = self._compare_digest(said[1]) if said else None
            if differs_at is not None:
                # Keep the difference for the next start. Keep the entries, too, in case the leader's store is the
                # damaged one.
                execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (DIFFERS_KEY, differs_at))
        self._number = number
        if differs_at is not None:
            raise StoresDiffer(differs_text(differs_at))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Callable[..., object]]:
        """Run the block as a transaction that also updates the digest. Roll back if the block raises."""
        digest = self._digest.value
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            yield execute
            execute("UPDATE meta SET value = ? WHERE key = ?", (self._digest.packed(), DIGEST_KEY))
            execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                execute("ROLLBACK")
            self._digest.value = digest
            raise

    def _remember_digest(self, journal_number: int) -> None:
        found = self.connection.execute("SELECT value FROM meta WHERE key = 'digests_at'").get or b""
        digests = journal_number.to_bytes(8, "big") + self._digest.packed() + found
        kept = digests[: digests_remembered_max * _DIGEST_ENTRY_BYTES]
        self.connection.execute("INSERT OR REPLACE INTO meta VALUES ('digests_at', ?)", (kept,))

    def _compare_digest(self, said: bytes) -> int | None:
        """Compare the digest that the leader published with the one recorded here.

        Return the entry of the journal after which they differ, None if they do not.
        """
        execute = self.connection.execute
        if execute("SELECT 1 FROM meta WHERE key = ?", (DIFFERS_KEY,)).get:
            # The difference is known already. Apply further entries silently.
            return None
        found = execute("SELECT value FROM meta WHERE key = 'digests_at'").get or b""
        for at in range(0, len(found), _DIGEST_ENTRY_BYTES):
            ours = found[at : at + _DIGEST_ENTRY_BYTES]
            if ours[:8] == said[:8] and ours != said:
                return int.from_bytes(said[:8], "big")
        return None

    def copy_log(self) -> bool:
        """Copy SQLite's log to the database and sync it. Return whether all was copied. Raises apsw.Error."""
        _is_busy, logged, copied = self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").get
        return bool(logged == copied)

    def close(self) -> None:
        self.connection.close()


def differs_text(number: int) -> str:
    """Return a message that a store differs from the leader's after this journal entry, with advice."""
    return (
        f"after entry {number} of the journal the metadata here is not what the leader has. Run `peacefs metadata "
        "check` on both directories. If that of the leader is not damaged, move this one away and start: it is "
        "copied from the leader. If it is, stop all coordinators, `peacefs metadata leave-journal` here and "
        "`peacefs metadata discard-journal`, move the leader's away, and start this one first"
    )


def _journal_number(content: Content) -> int | None:
    """Return the number of an entry in the journal; None without a journal. It is among the last changes."""
    for table, row in reversed(content.changes):
        if table == META and row[0] == "journal_number":
            return row[1]  # type: ignore[no-any-return]
    return None


@lru_cache(maxsize=64)
def _insertion(table: int) -> str:
    shape = TABLES[table]
    return f"INSERT OR REPLACE INTO {shape.name} VALUES ({', '.join('?' * shape.columns)})"


@lru_cache(maxsize=64)
def _deletion(table: int) -> str:
    shape = TABLES[table]
    return f"DELETE FROM {shape.name} WHERE {' AND '.join(f'{key} = ?' for key in shape.keys)}{_live(shape)}"


def connect_writer(path: Path) -> apsw.Connection:
    """Open a store for writing. Raises apsw.Error.

    `synchronous = NORMAL` is enough: if a power cut undoes the last transactions of SQLite, our log has them.
    """
    writer = connect(path)
    try:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("PRAGMA synchronous = NORMAL")
        writer.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        writer.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    except apsw.Error:
        writer.close()
        raise
    return writer
