"""Convert values of the namespace to HDFS's messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from peacefs.coordinator.calls.webhdfs_json import shown_limit
from peacefs.coordinator.metadata.model import InodeKind, InodeStatus, Quota, TreeSummary
from peacefs.protocol.hadoop.hdfs_pb2 import (
    AclEntryProto,
    AclStatusProto,
    BlockStoragePolicyProto,
    ContentSummaryProto,
    FsPermissionProto,
    HdfsFileStatusProto,
    LocatedBlocksProto,
    QuotaUsageProto,
    StorageTypeProto,
    StorageTypesProto,
)
from peacefs.protocol.values.acl_entries import AclEntry, EntryType, Scope, acl_text, parse_acl

#: HDFS's number of the policy for replicas on disks.
HOT_POLICY: Final = 7
_UNSPECIFIED_POLICY: Final = 0
_STICKY: Final = 0o1000
_UNSIGNED: Final = (1 << 64) - 1
_DIRECTORY: Final = HdfsFileStatusProto.IS_DIR
_FILE: Final = HdfsFileStatusProto.IS_FILE
_HAS_ACL: Final = HdfsFileStatusProto.HAS_ACL


def status_proto(status: InodeStatus, blocks: LocatedBlocksProto | None = None) -> HdfsFileStatusProto:
    is_directory = status.kind is InodeKind.DIRECTORY
    return HdfsFileStatusProto(
        fileType=_DIRECTORY if is_directory else _FILE,
        path=status.name.encode(),
        length=status.length,
        permission=FsPermissionProto(perm=status.permission),
        owner=status.owner,
        group=status.group,
        modification_time=status.modified_ms,
        access_time=status.accessed_ms,
        block_replication=0 if is_directory else status.replication,
        blocksize=0 if is_directory else status.block_bytes,
        locations=blocks,
        fileId=status.inode,
        storagePolicy=_UNSPECIFIED_POLICY,
        flags=_HAS_ACL if status.acl else 0,
    )


def content_summary_proto(counted: TreeSummary) -> ContentSummaryProto:
    return ContentSummaryProto(
        length=counted.length,
        fileCount=counted.files,
        directoryCount=counted.directories,
        quota=unsigned(shown_limit(counted.names_max)),
        spaceConsumed=counted.space_consumed,
        spaceQuota=unsigned(shown_limit(counted.bytes_max)),
        erasureCodingPolicy="" if counted.directories else "Replicated",
    )


def quota_usage_proto(quota: Quota) -> QuotaUsageProto:
    return QuotaUsageProto(
        fileAndDirectoryCount=quota.used.names,
        quota=unsigned(shown_limit(quota.names_max)),
        spaceConsumed=quota.used.bytes,
        spaceQuota=unsigned(shown_limit(quota.bytes_max)),
    )


def unsigned(number: int) -> int:
    """Return a number of Java as an unsigned field carries it."""
    return number & _UNSIGNED


def signed(number: int) -> int:
    """Return the number of Java that an unsigned field carries."""
    return number - (1 << 64) if number >= 1 << 63 else number


def acl_spec(entries: Sequence[AclEntryProto], *, with_permissions: bool = True) -> str:
    """Return entries in Hadoop's text form."""
    made = [
        AclEntry(Scope(entry.scope), EntryType(entry.type), entry.name, entry.permissions) for entry in entries
    ]
    if with_permissions:
        return acl_text(made)
    return ",".join(str(entry).rpartition(":")[0] for entry in made)


def acl_status_proto(status: InodeStatus) -> AclStatusProto:
    """Return the ACL without entries that the permission implies, as HDFS does."""
    return AclStatusProto(
        owner=status.owner,
        group=status.group,
        sticky=bool(status.permission & _STICKY),
        entries=[
            AclEntryProto(
                type=int(entry.type),  # type: ignore[arg-type]  # enumerations have HDFS's numbers
                scope=int(entry.scope),  # type: ignore[arg-type]
                permissions=entry.permission,  # type: ignore[arg-type]
                name=entry.name or None,
            )
            for entry in parse_acl(status.acl)
        ],
        permission=FsPermissionProto(perm=status.permission),
    )


def hot_policy_proto() -> BlockStoragePolicyProto:
    """Return HDFS's policy HOT, without its fallback to archive storage, which does not exist here."""
    return BlockStoragePolicyProto(
        policyId=HOT_POLICY,
        name="HOT",
        creationPolicy=StorageTypesProto(storageTypes=[StorageTypeProto.DISK]),
        creationFallbackPolicy=StorageTypesProto(),
        replicationFallbackPolicy=StorageTypesProto(),
    )
