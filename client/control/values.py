"""The coordinator's answers about a path."""

from __future__ import annotations

import msgspec


class FileStatus(msgspec.Struct, frozen=True):
    """A file or directory. Times are milliseconds since 1970, lengths are bytes.

    A rename keeps `file_id`, a copy gets a new one. It is 0 if the coordinator is of release 0.1.0.
    """

    path: str
    is_directory: bool
    length: int
    owner: str
    group: str
    permission: int
    modified_ms: int
    accessed_ms: int
    block_bytes: int
    replication: int
    file_id: int = 0

    @property
    def name(self) -> str:
        """The last component; empty for the root."""
        return self.path.rpartition("/")[2]


class ContentSummary(
    msgspec.Struct,
    frozen=True,
    rename={
        "directories": "directoryCount",
        "files": "fileCount",
        "space_consumed": "spaceConsumed",
        "names_quota": "quota",
        "space_quota": "spaceQuota",
    },
):
    """The size of a tree, in bytes; `space_consumed` counts every replica. Quotas are the root's; -1 for none."""

    directories: int
    files: int
    length: int
    space_consumed: int
    names_quota: int = -1
    space_quota: int = -1


class Space(msgspec.Struct, frozen=True):
    """The bytes of all datanodes' disks: how many there are, hold replicas, and are free for new ones."""

    capacity: int
    used: int
    remaining: int


class QuotaUsage(
    msgspec.Struct,
    frozen=True,
    rename={
        "names": "fileAndDirectoryCount",
        "names_quota": "quota",
        "space_consumed": "spaceConsumed",
        "space_quota": "spaceQuota",
    },
):
    """A directory's quotas (-1 for none) and their use: names including its own, and bytes of all replicas."""

    names: int
    names_quota: int
    space_consumed: int
    space_quota: int


class SnapshotDifference(msgspec.Struct, frozen=True, rename="camel"):
    """CREATE, MODIFY, DELETE or RENAME of a path relative to the directory. An empty path is the directory."""

    type: str
    source_path: str
    target_path: str | None = None


class SnapshotDiffReport(msgspec.Struct, frozen=True, rename="camel"):
    """The differences between two snapshots."""

    diff_list: list[SnapshotDifference]
