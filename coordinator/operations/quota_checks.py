"""Whether the quota above a file leaves room for more of it: asked before each chunk is placed or granted."""

from __future__ import annotations

from peacefs.coordinator.metadata.store import Reader
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.tokens import FileLease, FileWrite


def check_room(reader: Reader, token: FileWrite | FileLease, written_bytes: int) -> None:
    """`written_bytes` is what has been written with this token already. Raises QuotaExceeded and its like."""
    if isinstance(token, FileLease):
        namespace.check_extension(reader, token.inode, written_bytes)
    else:
        namespace.check_allocation(reader, parse_path(token.path), written_bytes, token.replication)
