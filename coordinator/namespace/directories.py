"""Directories as HDFS makes them: owned by the user, in the group of the directory above."""

from __future__ import annotations

from collections.abc import Iterable

from peacefs.coordinator.metadata.model import Inode, InodeKind
from peacefs.coordinator.metadata.store import Transaction

from .paths import check_name_length

_MODE_BITS = 0o1777


def only_mode_bits(permission: int) -> int:
    """Read, write, execute, and the sticky bit; HDFS has no others."""
    return permission & _MODE_BITS


def make_directories(
    tx: Transaction, parent: Inode, names: Iterable[str], owner: str, permission: int, now_ms: int
) -> Inode:
    """Makes a chain of directories below `parent`, none of which exists; the last, or `parent` for no names."""
    for name in names:
        check_name_length(name)
        made = Inode(
            inode=0,
            kind=InodeKind.DIRECTORY,
            permission=only_mode_bits(permission),
            owner=owner,
            group=parent.group,
            modified_ms=now_ms,
            accessed_ms=0,
            length=0,
            block_bytes=0,
            replication=0,
        )
        made = made._replace(inode=tx.add_inode(made))
        tx.add_entry(parent.inode, name, made.inode)
        tx.touch(parent.inode, now_ms)
        parent = made
    return parent
