"""The tables of the SQLite store, and how older ones are brought up to date.

A migration is a list of statements; the schema's version is how many have been applied, and is kept in
`PRAGMA user_version`. Never change one that was released: append another.

Rows of `inode`, `entry`, `reference` and `attribute` are valid in the transactions from_tx <= t < to_tx. What is
valid now has to_tx = LIVE, so that a name is one exact look-up by primary key and a listing one range scan. A
snapshot is one row; rows are retired (their to_tx is set) only if a snapshot shows them. Such a row bears, as
`kept_for`, the transaction of the youngest that does.
"""

from __future__ import annotations

from typing import Final

import apsw

from peacefs.coordinator.metadata.model import ROOT, ROOT_GROUP, ROOT_PERMISSION
from peacefs.coordinator.metadata.tables import DIRECTORY_KIND, LIVE

from . import row_digest

#: Marks the file as ours, in SQLite's header ("pcfs").
APPLICATION_ID: Final = 0x70636673

_FIRST_SCHEMA = (
    # The single values: see META_KEYS.
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID",
    """CREATE TABLE inode (
        inode INTEGER NOT NULL, to_tx INTEGER NOT NULL, from_tx INTEGER NOT NULL,
        kind INTEGER NOT NULL, permission INTEGER NOT NULL, owner TEXT NOT NULL, group_name TEXT NOT NULL,
        modified_ms INTEGER NOT NULL, accessed_ms INTEGER NOT NULL,
        length INTEGER NOT NULL, block_bytes INTEGER NOT NULL, replication INTEGER NOT NULL,
        PRIMARY KEY (inode, to_tx)) WITHOUT ROWID""",
    """CREATE TABLE entry (
        parent INTEGER NOT NULL, name TEXT NOT NULL, to_tx INTEGER NOT NULL, from_tx INTEGER NOT NULL,
        inode INTEGER NOT NULL, renamed_from TEXT, renamed_ms INTEGER,
        PRIMARY KEY (parent, name, to_tx)) WITHOUT ROWID""",
    """CREATE TABLE reference (
        inode INTEGER NOT NULL, position INTEGER NOT NULL, to_tx INTEGER NOT NULL, from_tx INTEGER NOT NULL,
        chunk INTEGER NOT NULL, length INTEGER NOT NULL,
        PRIMARY KEY (inode, position, to_tx)) WITHOUT ROWID""",
    # `hint` is a JSON list of the nodes that the completion named.
    """CREATE TABLE chunk (
        chunk INTEGER PRIMARY KEY, version INTEGER NOT NULL, length INTEGER NOT NULL, checksum INTEGER NOT NULL,
        replication INTEGER NOT NULL, referrers INTEGER NOT NULL, hint TEXT NOT NULL)""",
    "CREATE TABLE discarded (inode INTEGER PRIMARY KEY, at_tx INTEGER NOT NULL)",
    # `number` rises with time, so that old answers are dropped from the front.
    """CREATE TABLE request (
        number INTEGER PRIMARY KEY, request TEXT NOT NULL UNIQUE, answer BLOB NOT NULL, at_ms INTEGER NOT NULL)""",
    # A directory as it was when transaction `at_tx` had taken effect.
    """CREATE TABLE snapshot (
        directory INTEGER NOT NULL, name TEXT NOT NULL, at_tx INTEGER NOT NULL, created_ms INTEGER NOT NULL,
        PRIMARY KEY (directory, name)) WITHOUT ROWID""",
    "CREATE INDEX snapshot_by_tx ON snapshot (at_tx)",
)

_LEASES = (
    # A file that somebody extends, or did when he was last heard of: whoever's number is another is fenced off.
    "CREATE TABLE lease (inode INTEGER PRIMARY KEY, number INTEGER NOT NULL, holder TEXT NOT NULL)",
)

META_KEYS: Final = ("cluster_id", "epoch", "floor", "floor_held", "last_tx")

# Datanodes that are not simply in service; `mode` is a value of records.Mode, `until_ms` may be NULL.
_DATANODES = ("CREATE TABLE datanode (node TEXT PRIMARY KEY, mode TEXT NOT NULL, until_ms INTEGER) WITHOUT ROWID",)

# Until permissions were checked, the root's kept nobody out; as it was made it would now.
_OPEN_ROOT = (
    f"""UPDATE inode SET permission = {0o1777}
        WHERE inode = {ROOT} AND permission = {0o755} AND to_tx = {LIVE}""",
)

_SNAPSHOTS = (
    "CREATE TABLE snapshot_directory (directory INTEGER PRIMARY KEY)",
    *(f"ALTER TABLE {table} ADD COLUMN kept_for INTEGER" for table in ("inode", "entry", "reference")),
    # Rows that are valid now are not in these, and cost nothing.
    *(
        f"CREATE INDEX {table}_kept ON {table} (kept_for) WHERE kept_for IS NOT NULL"
        for table in ("inode", "entry", "reference")
    ),
    # The way up from an inode, now and in the past.
    "CREATE INDEX entry_by_inode ON entry (inode)",
    # Snapshots that are gone, while rows are still kept for them.
    "CREATE TABLE purge (at_tx INTEGER PRIMARY KEY)",
    # Inodes that wait for a name; what is here at a start waits in vain.
    "CREATE TABLE staged (inode INTEGER PRIMARY KEY)",
)

# Concatenations left no answer that says which request it was; an hour later nobody asks for one.
_TELLING_ANSWERS = ("DELETE FROM request WHERE answer = x''",)

_PINS = (
    # A directory as it was when transaction `at_tx` had taken effect, while somebody copies it: a snapshot that
    # nobody sees and that stands in nobody's way. Pins that are here at a start are no longer needed.
    "CREATE TABLE pin (at_tx INTEGER PRIMARY KEY, directory INTEGER NOT NULL)",
)

_QUOTAS = (
    # The limits of a directory in names and bytes (NULL: no limit), and its usage, itself among the names. Bytes
    # count every replica.
    """CREATE TABLE quota (
        directory INTEGER PRIMARY KEY, names_max INTEGER, bytes_max INTEGER,
        names INTEGER NOT NULL, bytes INTEGER NOT NULL)""",
)

_RUNS = (
    # The latest run of the query whose checkpoint root a directory is. `ended_ms` may be NULL.
    """CREATE TABLE run (
        directory INTEGER PRIMARY KEY, number INTEGER NOT NULL, user TEXT NOT NULL, host TEXT NOT NULL,
        pid INTEGER NOT NULL, since_ms INTEGER NOT NULL, ended_ms INTEGER)""",
)

_SUPERVISED_QUERIES = (
    # `command` and `nodes` are JSON lists; `phase` is a value of protocol.supervised.Phase.
    """CREATE TABLE supervised_query (
        name TEXT PRIMARY KEY, user TEXT NOT NULL, is_superuser INTEGER NOT NULL, command TEXT NOT NULL,
        checkpoint TEXT NOT NULL, nodes TEXT NOT NULL, restarts_max INTEGER NOT NULL, phase TEXT NOT NULL,
        agent TEXT NOT NULL, process TEXT NOT NULL, run TEXT NOT NULL, location TEXT NOT NULL,
        restarts INTEGER NOT NULL, reason TEXT NOT NULL, changed_ms INTEGER NOT NULL) WITHOUT ROWID""",
)

_KEPT_CHUNKS = (
    # For how long coordinators have served, by which the following go.
    "INSERT OR IGNORE INTO meta (key, value) VALUES ('served_ms', 0)",
    # All numbers up to `number` were drawn by then.
    "CREATE TABLE floor_mark (number INTEGER PRIMARY KEY, served_ms INTEGER NOT NULL)",
    # Chunks of no file: their writers have said that they hold them, or readers may know them still.
    "CREATE TABLE kept_chunk (chunk INTEGER PRIMARY KEY, until_ms INTEGER NOT NULL)",
)

_CREDENTIALS = (
    # The key that each datanode id belongs to, since its first registration; `revoked_ms` may be NULL.
    """CREATE TABLE credential (
        node TEXT PRIMARY KEY, public_key BLOB NOT NULL, enrolled_ms INTEGER NOT NULL, revoked_ms INTEGER)
        WITHOUT ROWID""",
)

_TOKENS = (
    # The public halves of keys that sign tokens; no private one is ever here. `ends_ms` is NULL while one signs.
    """CREATE TABLE token_key (
        number INTEGER PRIMARY KEY, public BLOB NOT NULL, made_ms INTEGER NOT NULL, ends_ms INTEGER)""",
    # Tokens that an administrator made: to be listed, and revoked. The tokens themselves are not kept.
    """CREATE TABLE issued_token (
        id TEXT PRIMARY KEY, user TEXT NOT NULL, is_administrator INTEGER NOT NULL, issued_ms INTEGER NOT NULL,
        ends_ms INTEGER NOT NULL) WITHOUT ROWID""",
    # Tokens that are refused although they verify; forgotten when they would have expired anyway.
    "CREATE TABLE revoked_token (id TEXT PRIMARY KEY, ends_ms INTEGER NOT NULL) WITHOUT ROWID",
    # `secret` is a salted hash.
    """CREATE TABLE oauth_client (
        id TEXT PRIMARY KEY, user TEXT NOT NULL, secret TEXT NOT NULL, token_s REAL NOT NULL,
        made_ms INTEGER NOT NULL) WITHOUT ROWID""",
    # Delegation tokens that count: `ends_ms` is until when one is renewed, `max_ms` until when it can be.
    """CREATE TABLE delegation_token (
        sequence INTEGER PRIMARY KEY, owner TEXT NOT NULL, renewer TEXT NOT NULL, ends_ms INTEGER NOT NULL,
        max_ms INTEGER NOT NULL)""",
)

_ATTRIBUTES = (
    # The entries of an ACL that the permission has no bits for, as text; and the transaction that changed the
    # extended attributes last, 0 for none. Whoever has read an inode knows whether there is more to read.
    "ALTER TABLE inode ADD COLUMN acl TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE inode ADD COLUMN attributes_tx INTEGER NOT NULL DEFAULT 0",
    """CREATE TABLE attribute (
        inode INTEGER NOT NULL, name TEXT NOT NULL, to_tx INTEGER NOT NULL, from_tx INTEGER NOT NULL,
        value BLOB NOT NULL, kept_for INTEGER, PRIMARY KEY (inode, name, to_tx)) WITHOUT ROWID""",
    "CREATE INDEX attribute_kept ON attribute (kept_for) WHERE kept_for IS NOT NULL",
)

_JOURNAL = (
    # The journal that the store follows, empty for none, and the last of its entries that is in the store.
    "INSERT INTO meta (key, value) VALUES ('journal', '')",
    "INSERT INTO meta (key, value) VALUES ('journal_number', 0)",
)

_STANDBYS = (
    # The supervised queries that have a second driver beside the first.
    "CREATE TABLE supervised_standby (name TEXT PRIMARY KEY) WITHOUT ROWID",
)

_DIGEST = (
    # What all rows are, in one number (`row_digest.py`). It is computed when the migrations are done.
    "INSERT INTO meta (key, value) VALUES ('digest', x'')",
)

_IMAGE = (
    # The last entry of the log that the image has, and its checksum in the chain.
    "INSERT INTO meta (key, value) VALUES ('log_number', 0)",
    "INSERT INTO meta (key, value) VALUES ('log_chain', x'0000000000000000')",
)

#: From this schema on the file is an image, brought up to date from a log.
IMAGE_SCHEMA: Final = 18

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    _FIRST_SCHEMA,
    _DATANODES,
    _LEASES,
    _OPEN_ROOT,
    _SNAPSHOTS,
    _TELLING_ANSWERS,
    _PINS,
    _QUOTAS,
    _RUNS,
    _SUPERVISED_QUERIES,
    _KEPT_CHUNKS,
    _CREDENTIALS,
    _TOKENS,
    _ATTRIBUTES,
    _JOURNAL,
    _STANDBYS,
    _DIGEST,
    _IMAGE,
)


def schema_version(connection: apsw.Connection) -> int:
    """The version of the file's schema; 0 for an empty file."""
    return int(connection.execute("PRAGMA user_version").get)


def migrate(connection: apsw.Connection) -> bool:
    """Apply the missing migrations, each in a transaction of its own. Return whether there were any."""
    first = schema_version(connection)
    for version in range(first, len(MIGRATIONS)):
        connection.execute("BEGIN IMMEDIATE")
        for statement in MIGRATIONS[version]:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {version + 1}")
        connection.execute("COMMIT")
    return first < len(MIGRATIONS)


def fill(connection: apsw.Connection, cluster_id: str, owner: str) -> None:
    """Fill a new store with its identity and the root directory."""
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
