"""The digest of a store: one number for all of its rows, wherever they are stored.

It is the sum, modulo 2**128, of a keyed hash of each row. A change subtracts the hash of the old row and adds that
of the new one. So the work depends only on the number of changed rows, and the order of changes does not matter.
Each transaction of the image stores the digest. Two stores of one cluster with the same rows have the same digest.
A standby compares its digest with the leader's from time to time (`image.py`). Restores and checks compute it from
the rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

import apsw
import msgspec

from .connections import Rows

DIGEST_KEY: Final = "digest"
#: The journal entry after which the rows were found to differ from the leader's, if they were.
DIFFERS_KEY: Final = "differs_at"

DIGEST_BYTES: Final = 16
_MODULUS = 1 << (8 * DIGEST_BYTES)
#: Rows of `meta` that may differ between otherwise equal stores.
_OWN_KEYS = frozenset(
    {
        DIGEST_KEY,
        "journal",
        "journal_number",
        "log_number",
        "log_chain",
        "digests_at",
        "leader_digest",
        DIFFERS_KEY,
    }
)
_encode = msgspec.msgpack.Encoder().encode


class RowDigest:
    """Updates a digest with the changes of one connection. After a rollback, the caller must restore `value`."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._hash = _hasher(connection)
        self.value = stored(connection) or 0
        connection.preupdate_hook(self._changed)

    def _changed(self, update: apsw.PreUpdate) -> None:
        table, old, new = update.table_name, update.old, update.new
        if table == "meta" and (old or new or ("",))[0] in _OWN_KEYS:
            return
        change = 0 if new is None else self._hash(table, new)
        if old is not None:
            change -= self._hash(table, old)
        self.value = (self.value + change) % _MODULUS

    def packed(self) -> bytes:
        return self.value.to_bytes(DIGEST_BYTES, "big")


def stored(connection: apsw.Connection) -> int | None:
    """Return the digest stored in a store; None if there is none."""
    packed = connection.execute("SELECT value FROM meta WHERE key = ?", (DIGEST_KEY,)).get
    return int.from_bytes(packed, "big") if packed else None


def computed(connection: apsw.Connection) -> int:
    """Return the digest of all rows that a connection sees. Takes 2 to 3 us per row."""
    hash_of = _hasher(connection)
    tables: Rows = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    )
    found = 0
    for (table,) in tables.fetchall():
        for row in connection.execute(f'SELECT * FROM "{table}"'):
            if table != "meta" or row[0] not in _OWN_KEYS:
                found += hash_of(table, row)
    return found % _MODULUS


def store_computed(connection: apsw.Connection) -> None:
    """Compute the digest from the rows and store it, in the caller's transaction."""
    packed = computed(connection).to_bytes(DIGEST_BYTES, "big")
    connection.execute("UPDATE meta SET value = ? WHERE key = ?", (packed, DIGEST_KEY))


def difference(connection: apsw.Connection) -> str | None:
    """Return a message if the rows do not match the stored digest, otherwise None."""
    says = stored(connection)
    if says is None or says == computed(connection):
        return None
    return "its rows are not those that were committed: their digest differs from the one that was stored"


def _hasher(connection: apsw.Connection) -> Callable[[str, tuple[apsw.SQLiteValue, ...]], int]:
    cluster_id: str = connection.execute("SELECT value FROM meta WHERE key = 'cluster_id'").get
    key = str(cluster_id).encode()[:64]
    begun = hashlib.blake2b(digest_size=DIGEST_BYTES, key=key)

    def hash_of(table: str, row: tuple[apsw.SQLiteValue, ...]) -> int:
        hashing = begun.copy()
        hashing.update(_encode((table, row)))
        return int.from_bytes(hashing.digest(), "big")

    return hash_of
