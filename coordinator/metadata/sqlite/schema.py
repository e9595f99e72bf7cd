"""The tables of the SQLite store, and the migration of stores of earlier releases.

A migration is a list of statements that leads to one version of the schema. The version is kept in
`PRAGMA user_version`. Never change a migration that was released: append another.

Rows of `inode`, `entry`, `reference` and `attribute` are valid in the transactions from_tx <= t < to_tx. Presently
valid rows have to_tx = LIVE, so that a name is one exact look-up by primary key and a listing one range scan. A
snapshot is one row. When a row becomes invalid, it is kept (with its to_tx set) only if a snapshot shows it.
`kept_for` is the transaction of the youngest such snapshot.
"""

from __future__ import annotations

from typing import Final

import apsw

from peacefs.coordinator.metadata.model import ROOT, ROOT_GROUP, ROOT_PERMISSION
from peacefs.coordinator.metadata.tables import DIRECTORY_KIND, LIVE

from . import row_digest

#: The application id in SQLite's header, which marks the file as ours ("pcfs").
APPLICATION_ID: Final = 0x70636673

META_KEYS: Final = ("cluster_id", "epoch", "floor", "floor_held", "last_tx")

#: The schema of release 0.1.0, the first release.
_FIRST_RELEASE = (
    # Single values: META_KEYS and those below. `served_ms` is how long coordinators have served. `journal` is the
    # journal that the store follows, empty for none, and `journal_number` its last entry that was applied here.
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID",
    "INSERT INTO meta (key, value) VALUES ('served_ms', 0), ('journal', ''), ('journal_number', 0)",
    # `acl` contains, as text, the ACL entries that the permission bits cannot express. `attributes_tx` is the
    # transaction that last changed the extended attributes, 0 for none.
    """CREATE TABLE inode (
        inode INTEGER NOT NULL, to_tx INTEGER NOT NULL, from_tx INTEGER NOT NULL,
        kind INTEGER NOT NULL, permission INTEGER NOT NULL, owner TEXT NOT NULL, group_name TEXT NOT NULL,
        modified_ms INTEGER NOT NULL, accessed_ms INTEGER NOT NULL,
        length INTEGER NOT NULL, block_bytes INTEGER NOT NULL, replication INTEGER NOT NULL,
        kept_for INTEGER, acl TEXT NOT NULL, attributes_tx INTEGER NOT NULL,
        PRIMARY KEY (inode, to_tx)) WITHOUT ROWID""",
    """CREATE TABLE entry (
        parent INTEGER NOT NULL, name TEXT NOT NULL, to_tx INTEGER NOT NULL, from_tx INTEGER NOT NULL,
        inode INTEGER NOT NULL, renamed_from TEXT, renamed_ms INTEGER, kept_for INTEGER,
        PRIMARY KEY (parent, name, to_tx)) WITHOUT ROWID""",
    """CREATE TABLE reference (
        inode INTEGER NOT NULL, position INTEGER NOT NULL, to_tx INTEGER NOT NULL, from_tx INTEGER NOT NULL,
        chunk INTEGER NOT NULL, length INTEGER NOT NULL, kept_for INTEGER,
        PRIMARY KEY (inode, position, to_tx)) WITHOUT ROWID""",
    """CREATE TABLE attribute (
        inode INTEGER NOT NULL, name TEXT NOT NULL, to_tx INTEGER NOT NULL, from_tx INTEGER NOT NULL,
        value BLOB NOT NULL, kept_for INTEGER, PRIMARY KEY (inode, name, to_tx)) WITHOUT ROWID""",
    # These partial indexes exclude presently valid rows, which therefore cost nothing.
    *(
        f"CREATE INDEX {table}_kept ON {table} (kept_for) WHERE kept_for IS NOT NULL"
        for table in ("inode", "entry", "reference", "attribute")
    ),
    # To find the parent of an inode, now and in the past.
    "CREATE INDEX entry_by_inode ON entry (inode)",
    # `hint` is a JSON list of the datanodes that the writer named at completion.
    """CREATE TABLE chunk (
        chunk INTEGER PRIMARY KEY, version INTEGER NOT NULL, length INTEGER NOT NULL, checksum INTEGER NOT NULL,
        replication INTEGER NOT NULL, referrers INTEGER NOT NULL, hint TEXT NOT NULL)""",
    "CREATE TABLE discarded (inode INTEGER PRIMARY KEY, at_tx INTEGER NOT NULL)",
    # `number` increases with time, so that old answers are dropped from the front.
    """CREATE TABLE request (
        number INTEGER PRIMARY KEY, request TEXT NOT NULL UNIQUE, answer BLOB NOT NULL, at_ms INTEGER NOT NULL)""",
    # A directory as it was right after transaction `at_tx`.
    """CREATE TABLE snapshot (
        directory INTEGER NOT NULL, name TEXT NOT NULL, at_tx INTEGER NOT NULL, created_ms INTEGER NOT NULL,
        PRIMARY KEY (directory, name)) WITHOUT ROWID""",
    "CREATE INDEX snapshot_by_tx ON snapshot (at_tx)",
    "CREATE TABLE snapshot_directory (directory INTEGER PRIMARY KEY)",
    # A directory as of transaction `at_tx`, pinned while it is copied or counted: a snapshot that is not listed
    # and blocks no operation. A start removes leftover pins.
    "CREATE TABLE pin (at_tx INTEGER PRIMARY KEY, directory INTEGER NOT NULL)",
    # Deleted snapshots for which rows are still kept.
    "CREATE TABLE purge (at_tx INTEGER PRIMARY KEY)",
    # Inodes that have no name yet. Those left at a start will never get one.
    "CREATE TABLE staged (inode INTEGER PRIMARY KEY)",
    # The limits of a directory in names and bytes (NULL: no limit), and its usage. The directory itself counts as
    # a name, and bytes count every replica. If both limits are NULL, the tree is being counted and the usage is
    # the change since the count began.
    """CREATE TABLE quota (
        directory INTEGER PRIMARY KEY, names_max INTEGER, bytes_max INTEGER,
        names INTEGER NOT NULL, bytes INTEGER NOT NULL)""",
    # The latest run of the query that has its checkpoint root in a directory. `ended_ms` may be NULL.
    """CREATE TABLE run (
        directory INTEGER PRIMARY KEY, number INTEGER NOT NULL, user TEXT NOT NULL, host TEXT NOT NULL,
        pid INTEGER NOT NULL, since_ms INTEGER NOT NULL, ended_ms INTEGER)""",
    # The lease of a file: its current or last writer. A writer with another number is fenced off.
    "CREATE TABLE lease (inode INTEGER PRIMARY KEY, number INTEGER NOT NULL, holder TEXT NOT NULL)",
    # Datanodes that are not in normal service. `mode` is a value of model.Mode; `until_ms` may be NULL.
    "CREATE TABLE datanode (node TEXT PRIMARY KEY, mode TEXT NOT NULL, until_ms INTEGER) WITHOUT ROWID",
    # The key of each datanode id, since its first registration. `revoked_ms` may be NULL.
    """CREATE TABLE credential (
        node TEXT PRIMARY KEY, public_key BLOB NOT NULL, enrolled_ms INTEGER NOT NULL, revoked_ms INTEGER)
        WITHOUT ROWID""",
    # The public keys of token signing keys; private keys are never stored here. `ends_ms` is NULL while a key
    # signs.
    """CREATE TABLE token_key (
        number INTEGER PRIMARY KEY, public BLOB NOT NULL, made_ms INTEGER NOT NULL, ends_ms INTEGER)""",
    # Tokens that an administrator created, so that they can be listed and revoked. The tokens themselves are not
    # stored.
    """CREATE TABLE issued_token (
        id TEXT PRIMARY KEY, user TEXT NOT NULL, is_administrator INTEGER NOT NULL, issued_ms INTEGER NOT NULL,
        ends_ms INTEGER NOT NULL) WITHOUT ROWID""",
    # Tokens that are refused although their signature is valid. Removed when they would have expired anyway.
    "CREATE TABLE revoked_token (id TEXT PRIMARY KEY, ends_ms INTEGER NOT NULL) WITHOUT ROWID",
    # `secret` is a salted hash.
    """CREATE TABLE oauth_client (
        id TEXT PRIMARY KEY, user TEXT NOT NULL, secret TEXT NOT NULL, token_s REAL NOT NULL,
        made_ms INTEGER NOT NULL) WITHOUT ROWID""",
    # Valid delegation tokens. A token expires at `ends_ms` unless renewed, and can be renewed until `max_ms`.
    """CREATE TABLE delegation_token (
        sequence INTEGER PRIMARY KEY, owner TEXT NOT NULL, renewer TEXT NOT NULL, ends_ms INTEGER NOT NULL,
        max_ms INTEGER NOT NULL)""",
    # `command` and `nodes` are JSON lists; `phase` is a value of QueryPhase.
    """CREATE TABLE supervised_query (
        name TEXT PRIMARY KEY, user TEXT NOT NULL, is_superuser INTEGER NOT NULL, command TEXT NOT NULL,
        checkpoint TEXT NOT NULL, nodes TEXT NOT NULL, restarts_max INTEGER NOT NULL, phase TEXT NOT NULL,
        agent TEXT NOT NULL, process TEXT NOT NULL, run TEXT NOT NULL, location TEXT NOT NULL,
        restarts INTEGER NOT NULL, reason TEXT NOT NULL, changed_ms INTEGER NOT NULL) WITHOUT ROWID""",
    # The supervised queries with a standby driver.
    "CREATE TABLE supervised_standby (name TEXT PRIMARY KEY) WITHOUT ROWID",
    # When coordinators had served for `served_ms`, all numbers up to `number` had been assigned.
    "CREATE TABLE floor_mark (number INTEGER PRIMARY KEY, served_ms INTEGER NOT NULL)",
    # Chunks that belong to no file but are kept until `until_ms`, because a writer or readers may still use them.
    "CREATE TABLE kept_chunk (chunk INTEGER PRIMARY KEY, until_ms INTEGER NOT NULL)",
)

_DIGEST = (
    # The digest of all rows (`row_digest.py`). It is computed after the migrations.
    "INSERT INTO meta (key, value) VALUES ('digest', x'')",
)

_IMAGE = (
    # The last entry of the log that was applied to the image, and its checksum in the chain.
    "INSERT INTO meta (key, value) VALUES ('log_number', 0)",
    "INSERT INTO meta (key, value) VALUES ('log_chain', x'0000000000000000')",
)

#: For each version, the statements that lead to it from the version before. The first one starts with an empty
#: file.
MIGRATIONS: Final = {16: _FIRST_RELEASE, 17: _DIGEST, 18: _IMAGE}
OLDEST_SCHEMA: Final = min(MIGRATIONS)
SCHEMA: Final = max(MIGRATIONS)
#: From this schema version on, the file is an image to which a log is applied.
IMAGE_SCHEMA: Final = 18


def schema_version(connection: apsw.Connection) -> int:
    """Return the version of the file's schema; 0 for an empty file."""
    return int(connection.execute("PRAGMA user_version").get)


def migrate(connection: apsw.Connection) -> bool:
    """Apply the missing migrations, each in its own transaction. Return whether there were any."""
    missing = [version for version in MIGRATIONS if version > schema_version(connection)]
    for version in missing:
        connection.execute("BEGIN IMMEDIATE")
        for statement in MIGRATIONS[version]:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
    return bool(missing)


def fill(connection: apsw.Connection, cluster_id: str, owner: str) -> None:
    """Add the identity and the root directory to a new store."""
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(
        "INSERT INTO meta (key, value) VALUES (?, ?)",
        [("cluster_id", cluster_id), *((key, 0) for key in META_KEYS[1:])],
    )
    connection.execute(
        "INSERT INTO inode VALUES (?, ?, 0, ?, ?, ?, ?, 0, 0, 0, 0, 0, NULL, '', 0)",
        (ROOT, LIVE, DIRECTORY_KIND, ROOT_PERMISSION, owner, ROOT_GROUP),
    )
    row_digest.store_computed(connection)
    connection.execute("COMMIT")
