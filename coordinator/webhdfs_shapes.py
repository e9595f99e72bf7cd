"""The JSON in which WebHDFS shows what the namespace is made of. Values in, values to be encoded out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from peacefs.protocol.limits import (
    checksum_block_bytes,
    chunk_bytes_max,
    replication_default,
    snapshots_per_directory_max,
)

from .metadata import Quota
from .quotas import NO_LIMIT
from .reading import BlockLocation
from .records import ContentSummary, FileStatus, Kind, ListPage
from .snapshot_diff import Difference
from .snapshots import ListedSnapshot, SnapshottableDirectory

#: HDFS's numbers for what it calls CRC32C, and for the storage policy of who has not chosen one.
_CRC32C = 2
_UNSPECIFIED_POLICY = 0


class StatusShape(msgspec.Struct, frozen=True, rename="camel"):
    """A file or directory. Times are milliseconds since 1970, the permission is octal."""

    path_suffix: str
    type: str
    length: int
    owner: str
    group: str
    permission: str
    access_time: int
    modification_time: int
    block_size: int
    replication: int
    file_id: int
    storage_policy: int = _UNSPECIFIED_POLICY


def status_shape(status: FileStatus) -> StatusShape:
    return StatusShape(
        path_suffix=status.name,
        type=status.kind.value,
        length=status.length,
        owner=status.owner,
        group=status.group,
        permission=f"{status.permission:o}",
        access_time=status.accessed_ms,
        modification_time=status.modified_ms,
        block_size=0 if status.kind is Kind.DIRECTORY else status.block_bytes,
        replication=0 if status.kind is Kind.DIRECTORY else status.replication,
        file_id=status.inode,
    )


def statuses_shape(entries: Sequence[FileStatus]) -> dict[str, Any]:
    return {"FileStatuses": {"FileStatus": [status_shape(status) for status in entries]}}


def page_shape(page: ListPage) -> dict[str, Any]:
    return {
        "DirectoryListing": {
            "partialListing": statuses_shape(page.entries),
            "remainingEntries": page.remaining,
        }
    }


def content_summary_shape(summary: ContentSummary) -> dict[str, Any]:
    return {
        "ContentSummary": {
            "directoryCount": summary.directories,
            "fileCount": summary.files,
            "length": summary.length,
            "quota": _limit(summary.names_max),
            "spaceConsumed": summary.space_consumed,
            "spaceQuota": _limit(summary.bytes_max),
        }
    }


def quota_usage_shape(quota: Quota) -> dict[str, Any]:
    return {
        "QuotaUsage": {
            "fileAndDirectoryCount": quota.used.names,
            "quota": _limit(quota.names_max),
            "spaceConsumed": quota.used.bytes,
            "spaceQuota": _limit(quota.bytes_max),
        }
    }


def _limit(quota: int | None) -> int:
    return NO_LIMIT if quota is None else quota


def snapshot_diff_shape(path: str, older: str, newer: str, differences: Sequence[Difference]) -> dict[str, Any]:
    return {
        "SnapshotDiffReport": {
            "diffList": [
                {"sourcePath": difference.path, "type": difference.kind.value}
                | ({} if difference.target is None else {"targetPath": difference.target})
                for difference in differences
            ],
            "fromSnapshot": older,
            "snapshotRoot": path,
            "toSnapshot": newer,
        }
    }


def block_locations_shape(locations: Sequence[BlockLocation]) -> dict[str, Any]:
    return {"BlockLocations": {"BlockLocation": [_block_shape(location) for location in locations]}}


def _block_shape(location: BlockLocation) -> dict[str, Any]:
    return {
        "offset": location.offset,
        "length": location.length,
        "corrupt": not location.nodes,
        "names": [name for name, _host, _rack in location.nodes],
        "hosts": [host for _name, host, _rack in location.nodes],
        "topologyPaths": [f"{rack}/{name}" for name, _host, rack in location.nodes],
        "storageTypes": ["DISK"] * len(location.nodes),
        "cachedHosts": [],
    }


def snapshottable_directories_shape(found: Sequence[SnapshottableDirectory]) -> dict[str, Any]:
    return {
        "SnapshottableDirectoryList": [
            {
                "dirStatus": status_shape(one.status),
                "parentFullPath": one.parent,
                "snapshotNumber": one.snapshots,
                "snapshotQuota": snapshots_per_directory_max,
            }
            for one in found
        ]
    }


def snapshots_shape(path: str, found: Sequence[ListedSnapshot]) -> dict[str, Any]:
    return {
        "SnapshotList": [
            {
                "deletionStatus": "ACTIVE",
                "dirStatus": status_shape(one.status),
                "parentFullPath": path,
                "snapshotID": one.at_tx,
            }
            for one in found
        ]
    }


def server_defaults_shape(trash_minutes: int) -> dict[str, Any]:
    """What a client takes for files that it does not say more about, and for how long there is a trash."""
    return {
        "FsServerDefaults": {
            "blockSize": chunk_bytes_max,
            "bytesPerChecksum": checksum_block_bytes,
            "checksumType": _CRC32C,
            "fileBufferSize": 4096,
            "replication": replication_default,
            "trashInterval": trash_minutes,
            "writePacketSize": 65536,
        }
    }
