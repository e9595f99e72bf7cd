"""The numbered SQL statements that journal entries refer to.

A number keeps its meaning for ever: never change or remove a released statement, append another. An unused
statement stays, for entries of an older coordinator, and must mean the same in a newer schema. The version of an
entry includes the number of statements and the version of the schema.
"""

from __future__ import annotations

from typing import Final

from peacefs.coordinator.metadata.tables import LIVE

STATEMENTS: Final = (
    f"DELETE FROM attribute WHERE inode = ? AND name = ? AND to_tx = {LIVE}",
    "DELETE FROM attribute WHERE inode = ? AND name = ? AND to_tx = ?",
    "DELETE FROM chunk WHERE chunk = ?",
    "DELETE FROM credential WHERE node = ?",
    "DELETE FROM datanode WHERE node = ?",
    "DELETE FROM delegation_token WHERE sequence = ?",
    "DELETE FROM discarded WHERE inode = ?",
    f"DELETE FROM entry WHERE parent = ? AND name = ? AND to_tx = {LIVE}",
    "DELETE FROM entry WHERE parent = ? AND name = ? AND to_tx = ?",
    "DELETE FROM floor_mark",
    "DELETE FROM floor_mark WHERE number <= ?",
    "DELETE FROM inode WHERE inode = ? AND inode = ? AND to_tx = ?",
    f"DELETE FROM inode WHERE inode = ? AND to_tx = {LIVE}",
    "DELETE FROM issued_token WHERE id = ?",
    "DELETE FROM kept_chunk WHERE until_ms <= ?",
    "DELETE FROM lease WHERE inode = ?",
    "DELETE FROM oauth_client WHERE id = ?",
    "DELETE FROM pin",
    "DELETE FROM pin WHERE at_tx = ?",
    "DELETE FROM purge WHERE at_tx = ?",
    "DELETE FROM quota WHERE directory = ?",
    f"DELETE FROM reference WHERE inode = ? AND position = ? AND to_tx = {LIVE}",
    "DELETE FROM reference WHERE inode = ? AND position = ? AND to_tx = ?",
    "DELETE FROM request WHERE number <= ?",
    "DELETE FROM revoked_token WHERE id = ?",
    "DELETE FROM run WHERE directory = ?",
    "DELETE FROM snapshot WHERE directory = ? AND name = ?",
    "DELETE FROM snapshot_directory WHERE directory = ?",
    "DELETE FROM staged",
    "DELETE FROM staged WHERE inode = ?",
    "DELETE FROM supervised_query WHERE name = ?",
    "DELETE FROM token_key WHERE number = ?",
    f"INSERT INTO attribute VALUES (?, ?, {LIVE}, ?, ?, NULL)",
    "INSERT INTO discarded SELECT inode, ? FROM staged",
    "INSERT INTO discarded VALUES (?, ?)",
    f"INSERT INTO entry VALUES (?, ?, {LIVE}, ?, ?, ?, ?, NULL)",
    "INSERT INTO floor_mark (number, served_ms) VALUES (?, ?)",
    "INSERT INTO inode SELECT inode, ?, from_tx, kind, permission, owner, group_name, modified_ms, "
    "accessed_ms, length, block_bytes, replication, ?, acl, attributes_tx FROM inode WHERE inode = ? "
    f"AND to_tx = {LIVE}",
    f"INSERT INTO inode VALUES (?, {LIVE}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?)",
    "INSERT INTO pin VALUES (?, ?)",
    "INSERT INTO purge SELECT at_tx FROM pin",
    "INSERT INTO purge VALUES (?)",
    f"INSERT INTO reference VALUES (?, ?, {LIVE}, ?, ?, ?, NULL)",
    "INSERT INTO request VALUES (NULL, ?, ?, ?) ON CONFLICT (request) DO NOTHING",
    "INSERT INTO snapshot VALUES (?, ?, ?, ?)",
    "INSERT INTO staged VALUES (?)",
    "INSERT OR IGNORE INTO chunk VALUES (?, ?, ?, ?, ?, 1, ?)",
    "INSERT OR IGNORE INTO credential VALUES (?, ?, ?, ?)",
    "INSERT OR IGNORE INTO snapshot_directory VALUES (?)",
    "INSERT OR REPLACE INTO datanode (node, mode, until_ms) VALUES (?, ?, ?)",
    "INSERT OR REPLACE INTO delegation_token (sequence, owner, renewer, ends_ms, max_ms) VALUES (?, ?, ?, ?, ?)",
    "INSERT OR REPLACE INTO issued_token (id, user, is_administrator, issued_ms, ends_ms) VALUES (?, ?, ?, ?, ?)",
    "INSERT OR REPLACE INTO kept_chunk (chunk, until_ms) VALUES (?, ?)",
    "INSERT OR REPLACE INTO lease VALUES (?, ?, ?)",
    "INSERT OR REPLACE INTO oauth_client (id, user, secret, token_s, made_ms) VALUES (?, ?, ?, ?, ?)",
    "INSERT OR REPLACE INTO quota VALUES (?, ?, ?, ?, ?)",
    "INSERT OR REPLACE INTO revoked_token (id, ends_ms) VALUES (?, ?)",
    "INSERT OR REPLACE INTO run VALUES (?, ?, ?, ?, ?, ?, ?)",
    "INSERT OR REPLACE INTO supervised_query VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "INSERT OR REPLACE INTO token_key (number, public, made_ms, ends_ms) VALUES (?, ?, ?, ?)",
    "UPDATE attribute SET kept_for = ? WHERE inode = ? AND name = ? AND to_tx = ?",
    f"UPDATE attribute SET to_tx = ?, kept_for = ? WHERE inode = ? AND name = ? AND to_tx = {LIVE}",
    "UPDATE chunk SET referrers = referrers + 1 WHERE chunk = ?",
    "UPDATE chunk SET referrers = referrers - 1 WHERE chunk = ?",
    "UPDATE chunk SET replication = ? WHERE chunk = ? AND (replication < ? OR (replication > ? AND "
    "referrers = 1))",
    "UPDATE credential SET public_key = ?, enrolled_ms = ?, revoked_ms = ? WHERE node = ?",
    "UPDATE entry SET kept_for = ? WHERE parent = ? AND name = ? AND to_tx = ?",
    f"UPDATE entry SET to_tx = ?, kept_for = ? WHERE parent = ? AND name = ? AND to_tx = {LIVE}",
    f"UPDATE inode SET attributes_tx = ? WHERE inode = ? AND to_tx = {LIVE}",
    f"UPDATE inode SET from_tx = ? WHERE inode = ? AND to_tx = {LIVE}",
    "UPDATE inode SET kept_for = ? WHERE inode = ? AND inode = ? AND to_tx = ?",
    f"UPDATE inode SET modified_ms = max(modified_ms, ?) WHERE inode = ? AND to_tx = {LIVE}",
    "UPDATE inode SET permission = ?, owner = ?, group_name = ?, modified_ms = ?, accessed_ms = ?, "
    "length = ?, block_bytes = ?, replication = ?, acl = ?, attributes_tx = ? WHERE inode = ? AND "
    f"to_tx = {LIVE}",
    f"UPDATE inode SET to_tx = ?, kept_for = ? WHERE inode = ? AND to_tx = {LIVE}",
    "UPDATE meta SET value = ? WHERE key = ?",
    "UPDATE quota SET names = names + ?, bytes = bytes + ? WHERE directory = ?",
    "UPDATE reference SET kept_for = ? WHERE inode = ? AND position = ? AND to_tx = ?",
    f"UPDATE reference SET length = ?, from_tx = ? WHERE inode = ? AND position = ? AND to_tx = {LIVE}",
    f"UPDATE reference SET to_tx = ?, kept_for = ? WHERE inode = ? AND position = ? AND to_tx = {LIVE}",
    "UPDATE snapshot SET name = ? WHERE directory = ? AND name = ?",
    "INSERT OR IGNORE INTO supervised_standby VALUES (?)",
    "DELETE FROM supervised_standby WHERE name = ?",
)
