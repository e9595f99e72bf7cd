"""The tables of the metadata as rows and keys: what a change names, and where the image keeps it.

A row is a tuple of the columns of its SQL table, in their order. Rows of inodes, entries, references and
attributes are valid from one transaction to another; those that are valid now and those that are retired are
tables of their own here. A table's number is written into the log and the journal: never change one, append
another.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

#: Later than any transaction: the largest number that SQLite holds.
LIVE: Final = 2**63 - 1

Row = tuple[Any, ...]


class Table(NamedTuple):
    """A table: its name in SQL and its key.

    `keys` are the columns of the key, the first of which groups rows; `to_tx` is left out where rows are live.
    """

    name: str
    keys: tuple[str, ...]
    columns: int
    #: Rows that are valid now of a table whose rows are valid for a time.
    is_live: bool = False
    is_past: bool = False
    #: All of its rows are kept in memory.
    is_small: bool = False

    @property
    def is_nested(self) -> bool:
        """Return whether the key has more than one part."""
        return len(self.keys) > 1


META: Final = 0
INODE: Final = 1
ENTRY: Final = 2
REFERENCE: Final = 3
ATTRIBUTE: Final = 4
#: The table of retired rows is so far behind that of live ones.
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
#: The live tables of which snapshots may show retired rows, in the order in which those are purged.
RETIRING: Final = (REFERENCE, ATTRIBUTE, ENTRY, INODE)

FILE_KIND: Final = 0
DIRECTORY_KIND: Final = 1


def key_of(table: int, row: Row) -> tuple[Any, ...]:
    """Return the key of a row."""
    return row[: len(TABLES[table].keys)]
