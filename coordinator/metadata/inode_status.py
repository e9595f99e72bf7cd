"""What a lister or stat sees of an inode."""

from __future__ import annotations

from .model import FileStatus, Inode


def status_as(name: str, inode: Inode) -> FileStatus:
    """The status of an inode under a name; the name is empty for the path that was itself asked for."""
    return FileStatus(
        name,
        inode.kind,
        inode.length,
        inode.owner,
        inode.group,
        inode.permission,
        inode.modified_ms,
        inode.accessed_ms,
        inode.block_bytes,
        inode.replication,
        inode.inode,
    )
