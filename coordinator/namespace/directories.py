"""Make directories as HDFS does: owned by the user, in the group of the directory above."""

from __future__ import annotations

from collections.abc import Iterable

from peacefs.coordinator.metadata.model import Inode, InodeKind
from peacefs.coordinator.metadata.transaction import Transaction

from .acl_rules import inherited
from .paths import check_name_length

_MODE_BITS = 0o1777
_OWNER_ENTERS = 0o300
_OTHERS_WRITE = 0o022


def only_mode_bits(permission: int) -> int:
    """Read, write, execute, and the sticky bit; HDFS has no others."""
    return permission & _MODE_BITS


def implicit_permission(above: Inode, of_file: int) -> int:
    """Return the permission of directories that the CREATE of a file makes implicitly.

    HDFS passes on the permission of the directory above, without the sticky bit. Below /tmp, everybody could write
    into them. Here group and others may write only if the caller's mask also lets them write the file (decision
    65).
    """
    masked = _OTHERS_WRITE & ~of_file
    return above.permission & 0o777 & ~masked | _OWNER_ENTERS


def make_directories(
    tx: Transaction,
    parent: Inode,
    names: Iterable[str],
    owner: str,
    permission: int,
    now_ms: int,
    unmasked: int | None = None,
) -> Inode:
    """Make a chain of new directories below `parent`. Return the last, or `parent` if there are no names.

    `unmasked` is the permission for inheriting a default ACL, if the client sent it.
    """
    for name in names:
        check_name_length(name)
        kept = inherited(parent.acl, only_mode_bits(permission), unmasked, is_directory=True)
        made = Inode(
            inode=tx.next_inode(),
            kind=InodeKind.DIRECTORY,
            permission=kept.permission,
            owner=owner,
            group=parent.group,
            modified_ms=now_ms,
            accessed_ms=0,
            length=0,
            block_bytes=0,
            replication=0,
            acl=kept.acl,
            from_tx=tx.tx,
        )
        tx.add_inode(made)
        tx.add_entry(parent.inode, name, made.inode)
        tx.touch(parent.inode, now_ms)
        parent = made
    return parent
