"""The messages that answer operations on names over frames."""

from __future__ import annotations

from typing import Final

from peacefs.coordinator.metadata.model import InodeKind, InodeStatus, ListPage, Quota, TreeSummary
from peacefs.protocol import messages as m

from .webhdfs_json import shown_limit


def _row(status: InodeStatus) -> m.NameStatus:
    is_directory = status.kind is InodeKind.DIRECTORY
    return m.NameStatus(
        status.name,
        is_directory,
        status.length,
        status.owner,
        status.group,
        status.permission,
        status.modified_ms,
        status.accessed_ms,
        0 if is_directory else status.block_bytes,
        0 if is_directory else status.replication,
        status.inode,
    )


def file_info(status: InodeStatus) -> m.FileInfo:
    return m.FileInfo(_row(status))


def listing(page: ListPage) -> m.Listing:
    return m.Listing([_row(status) for status in page.entries], page.remaining)


def tree_sums(counted: TreeSummary) -> m.TreeSums:
    quotas = map(shown_limit, (counted.names_max, counted.bytes_max))
    return m.TreeSums(counted.directories, counted.files, counted.length, counted.space_consumed, *quotas)


def quota_sums(quota: Quota) -> m.QuotaSums:
    names, space = map(shown_limit, (quota.names_max, quota.bytes_max))
    return m.QuotaSums(quota.used.names, names, quota.used.bytes, space)


def acl_entries(status: InodeStatus) -> m.AclEntries:
    return m.AclEntries(status.permission, status.acl or "")


_DONE: Final = m.NameChanged()


def changed(done: bool | None) -> m.NameChanged:
    """Return the answer to a change. None, the result of changes that return nothing, means done."""
    return _DONE if done is None else m.NameChanged(done)
