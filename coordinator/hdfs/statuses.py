"""Convert values of the namespace to HDFS's messages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
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

# Caches for parts of statuses that many files share, and for whole statuses, some 400 bytes each.
common_parts_max: Final = 1024
encoded_statuses_max: Final = 8192
#: HDFS's id of the policy for replicas on disks.
HOT_POLICY: Final = 7
_UNSPECIFIED_POLICY: Final = 0
_STICKY: Final = 0o1000
_UNSIGNED: Final = (1 << 64) - 1
_DIRECTORY: Final = HdfsFileStatusProto.IS_DIR
_FILE: Final = HdfsFileStatusProto.IS_FILE
_HAS_ACL: Final = HdfsFileStatusProto.HAS_ACL


def status_proto(status: InodeStatus, blocks: LocatedBlocksProto | None = None) -> HdfsFileStatusProto:
    """Return a status. Most fields are copied from a cache, because many files share them."""
    made = HdfsFileStatusProto()
    made.CopyFrom(
        _common(
            status.kind is InodeKind.DIRECTORY,
            status.permission,
            status.owner,
            status.group,
            status.replication,
            status.block_bytes,
            bool(status.acl),
        )
    )
    made.path = status.name.encode()
    made.length = status.length
    made.modification_time = status.modified_ms
    made.access_time = status.accessed_ms
    made.fileId = status.inode
    if blocks is not None:
        made.locations.CopyFrom(blocks)
    return made


@lru_cache(encoded_statuses_max)
def encoded_status(status: InodeStatus) -> bytes:
    """Return a status as bytes. Clients ask for the same files again and again."""
    raw: bytes = status_proto(status).SerializeToString()
    return raw


@lru_cache(common_parts_max)
def _common(
    is_directory: bool,
    permission: int,
    owner: str,
    group: str,
    replication: int,
    block_bytes: int,
    has_acl: bool,
) -> HdfsFileStatusProto:
    return HdfsFileStatusProto(
        fileType=_DIRECTORY if is_directory else _FILE,
        permission=FsPermissionProto(perm=permission),
        owner=owner,
        group=group,
        block_replication=0 if is_directory else replication,
        blocksize=0 if is_directory else block_bytes,
        storagePolicy=_UNSPECIFIED_POLICY,
        flags=_HAS_ACL if has_acl else 0,
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
    """Convert a signed Java number to its unsigned field."""
    return number & _UNSIGNED


def signed(number: int) -> int:
    """Convert an unsigned field to a signed Java number."""
    return number - (1 << 64) if number >= 1 << 63 else number


def acl_spec(entries: Sequence[AclEntryProto], *, with_permissions: bool = True) -> str:
    """Return ACL entries in Hadoop's text form."""
    made = [
        AclEntry(Scope(entry.scope), EntryType(entry.type), entry.name, entry.permissions) for entry in entries
    ]
    if with_permissions:
        return acl_text(made)
    return ",".join(str(entry).rpartition(":")[0] for entry in made)


def acl_status_proto(status: InodeStatus) -> AclStatusProto:
    """Return the ACL without the entries that follow from the permission bits, as HDFS does."""
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
    """Return HDFS's HOT policy without its fallback to archive storage, which does not exist here."""
    return BlockStoragePolicyProto(
        policyId=HOT_POLICY,
        name="HOT",
        creationPolicy=StorageTypesProto(storageTypes=[StorageTypeProto.DISK]),
        creationFallbackPolicy=StorageTypesProto(),
        replicationFallbackPolicy=StorageTypesProto(),
    )
