"""The tables of the metadata: their numbers, names and keys.

A row is a tuple of the columns of its SQL table, in their order. Rows of inodes, entries, references and
attributes are valid from one transaction to another. Here each of these tables is two: one for live rows, one for
retired rows. The numbers of tables are written into the log and the journal: never change a number, only append
new ones.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

#: Later than any transaction: the largest number that SQLite holds.
LIVE: Final = 2**63 - 1

Row = tuple[Any, ...]


class Table(NamedTuple):
    """A table: its name in SQL and its key.

    `keys` are the columns of the key. The first one groups rows. Keys of live rows do not contain `to_tx`.
    """

    name: str
    keys: tuple[str, ...]
    columns: int
    #: True for the live rows of a versioned table.
    is_live: bool = False
    is_past: bool = False
    #: True if all rows are always in memory.
    is_small: bool = False

    @property
    def is_nested(self) -> bool:
        """Whether the key has more than one part."""
        return len(self.keys) > 1


META: Final = 0
INODE: Final = 1
ENTRY: Final = 2
REFERENCE: Final = 3
ATTRIBUTE: Final = 4
#: The number of a table of live rows, plus this, is the number of its table of retired rows.
PAST: Final = 4
CHUNK: Final = 9
DISCARDED: Final = 10
REQUEST: Final = 11
SNAPSHOT: Final = 12
SNAPSHOT_DIRECTORY: Final = 13
PIN: Final = 14
PURGE: Final = 15
STAGED: Final = 16
QUOTA: Final = 17
RUN: Final = 18
LEASE: Final = 19
DATANODE: Final = 20
CREDENTIAL: Final = 21
TOKEN_KEY: Final = 22
ISSUED_TOKEN: Final = 23
REVOKED_TOKEN: Final = 24
OAUTH_CLIENT: Final = 25
DELEGATION_TOKEN: Final = 26
SUPERVISED_QUERY: Final = 27
SUPERVISED_STANDBY: Final = 28
FLOOR_MARK: Final = 29
KEPT_CHUNK: Final = 30

TABLES: Final = (
    Table("meta", ("key",), 2, is_small=True),
    Table("inode", ("inode",), 15, is_live=True),
    Table("entry", ("parent", "name"), 8, is_live=True),
    Table("reference", ("inode", "position"), 7, is_live=True),
    Table("attribute", ("inode", "name"), 6, is_live=True),
    Table("inode", ("inode", "to_tx"), 15, is_past=True),
    Table("entry", ("parent", "name", "to_tx"), 8, is_past=True),
    Table("reference", ("inode", "position", "to_tx"), 7, is_past=True),
    Table("attribute", ("inode", "name", "to_tx"), 6, is_past=True),
    Table("chunk", ("chunk",), 7),
    Table("discarded", ("inode",), 2, is_small=True),
    Table("request", ("number",), 4),
    Table("snapshot", ("directory", "name"), 4, is_small=True),
    Table("snapshot_directory", ("directory",), 1, is_small=True),
    Table("pin", ("at_tx",), 2, is_small=True),
    Table("purge", ("at_tx",), 1, is_small=True),
    Table("staged", ("inode",), 1, is_small=True),
    Table("quota", ("directory",), 5, is_small=True),
    Table("run", ("directory",), 7, is_small=True),
    Table("lease", ("inode",), 3, is_small=True),
    Table("datanode", ("node",), 3, is_small=True),
    Table("credential", ("node",), 4, is_small=True),
    Table("token_key", ("number",), 4, is_small=True),
    Table("issued_token", ("id",), 5, is_small=True),
    Table("revoked_token", ("id",), 2, is_small=True),
    Table("oauth_client", ("id",), 5, is_small=True),
    Table("delegation_token", ("sequence",), 5, is_small=True),
    Table("supervised_query", ("name",), 15, is_small=True),
    Table("supervised_standby", ("name",), 1, is_small=True),
    Table("floor_mark", ("number",), 2, is_small=True),
    Table("kept_chunk", ("chunk",), 2, is_small=True),
)

SMALL_TABLES: Final = tuple(number for number, table in enumerate(TABLES) if table.is_small)
#: The tables of live rows that have retired rows, in the order in which these are purged.
RETIRING: Final = (REFERENCE, ATTRIBUTE, ENTRY, INODE)

FILE_KIND: Final = 0
DIRECTORY_KIND: Final = 1


def key_of(table: int, row: Row) -> tuple[Any, ...]:
    """Return the key of a row."""
    return row[: len(TABLES[table].keys)]
