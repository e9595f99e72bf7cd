"""Convert values of the namespace to WebHDFS's JSON structures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from peacefs.coordinator.cluster.membership import Node
from peacefs.coordinator.metadata.model import InodeKind, InodeStatus, ListPage, Quota, TreeSummary
from peacefs.coordinator.namespace.quotas import NO_LIMIT
from peacefs.coordinator.operations.read import BlockLocation, FileLocations
from peacefs.protocol.limits import checksum_block_bytes, chunk_bytes_max, replication_default
from peacefs.protocol.messages import Usage

#: HDFS's numbers for the checksum type CRC32C, and for an unspecified storage policy.
_CRC32C = 2
_UNSPECIFIED_POLICY = 0
_STICKY = 0o1000
#: Hadoop's encoding of an empty token: four empty fields.
_NO_TOKEN = "AAAAAA"


class StatusJson(msgspec.Struct, frozen=True, rename="camel"):
    """The status of a file or directory. Times are milliseconds since 1970, the permission is octal."""

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
    #: Only present if true, as in HDFS.
    acl_bit: bool | msgspec.UnsetType = msgspec.UNSET


def status_json(status: InodeStatus) -> StatusJson:
    return StatusJson(
        path_suffix=status.name,
        type=status.kind.value,
        length=status.length,
        owner=status.owner,
        group=status.group,
        permission=f"{status.permission:o}",
        access_time=status.accessed_ms,
        modification_time=status.modified_ms,
        block_size=0 if status.kind is InodeKind.DIRECTORY else status.block_bytes,
        replication=0 if status.kind is InodeKind.DIRECTORY else status.replication,
        file_id=status.inode,
        acl_bit=True if status.acl else msgspec.UNSET,
    )


def acl_json(status: InodeStatus) -> dict[str, Any]:
    """Return the ACL without entries that the permission implies. With an ACL, its group bits are the mask."""
    entries = status.acl.split(",") if status.acl else []
    return {
        "AclStatus": {
            "entries": entries,
            "group": status.group,
            "owner": status.owner,
            "permission": f"{status.permission & 0o777 | status.permission & _STICKY:o}",
            "stickyBit": bool(status.permission & _STICKY),
        }
        | ({"aclBit": True} if entries else {})
    }


def statuses_json(entries: Sequence[InodeStatus]) -> dict[str, Any]:
    return {"FileStatuses": {"FileStatus": [status_json(status) for status in entries]}}


def page_json(page: ListPage) -> dict[str, Any]:
    return {
        "DirectoryListing": {
            "partialListing": statuses_json(page.entries),
            "remainingEntries": page.remaining,
        }
    }


def content_summary_json(summary: TreeSummary) -> dict[str, Any]:
    return {
        "ContentSummary": {
            "directoryCount": summary.directories,
            # HDFS's value for files that are not erasure coded; it is empty for a directory without a policy.
            "ecPolicy": "" if summary.directories else "Replicated",
            "fileCount": summary.files,
            "length": summary.length,
            "quota": shown_limit(summary.names_max),
            "spaceConsumed": summary.space_consumed,
            "spaceQuota": shown_limit(summary.bytes_max),
        }
    }


def quota_usage_json(quota: Quota) -> dict[str, Any]:
    return {
        "QuotaUsage": {
            "fileAndDirectoryCount": quota.used.names,
            "quota": shown_limit(quota.names_max),
            "spaceConsumed": quota.used.bytes,
            "spaceQuota": shown_limit(quota.bytes_max),
        }
    }


def shown_limit(quota: int | None) -> int:
    """Return a limit as a number, as HDFS does."""
    return NO_LIMIT if quota is None else quota


def space_json(space: Usage) -> dict[str, Any]:
    return {
        "FsStatus": {
            "capacity": space.capacity_bytes,
            "remaining": space.available_bytes,
            "used": space.used_bytes,
        }
    }


def block_locations_json(found: FileLocations) -> dict[str, Any]:
    return {"BlockLocations": {"BlockLocation": [_block_json(block) for block in found.blocks]}}


def _block_json(block: BlockLocation) -> dict[str, Any]:
    names = [f"{node.registration.data_host}:{node.registration.data_port}" for node in block.nodes]
    return {
        "offset": block.offset,
        "length": block.length,
        "corrupt": not block.nodes,
        "names": names,
        "hosts": [node.registration.data_host for node in block.nodes],
        "topologyPaths": [f"{node.rack}/{name}" for node, name in zip(block.nodes, names, strict=True)],
        "storageTypes": ["DISK"] * len(block.nodes),
        "cachedHosts": [],
    }


def located_blocks_json(found: FileLocations) -> dict[str, Any]:
    """Return block locations in the format for older clients, with empty block tokens and pools."""
    return {
        "LocatedBlocks": {
            "fileLength": found.length,
            "isLastBlockComplete": True,
            "isUnderConstruction": False,
            "lastLocatedBlock": None,
            "locatedBlocks": [_located_block_json(block) for block in found.blocks],
        }
    }


def _located_block_json(block: BlockLocation) -> dict[str, Any]:
    return {
        "block": {
            "blockId": block.chunk.chunk,
            "blockPoolId": "",
            "generationStamp": block.chunk.version,
            "numBytes": block.length,
        },
        "blockToken": {"urlString": _NO_TOKEN},
        "cachedLocations": [],
        "isCorrupt": not block.nodes,
        "locations": [_datanode_json(node) for node in block.nodes],
        "startOffset": block.offset,
        "storageTypes": ["DISK"] * len(block.nodes),
    }


def _datanode_json(node: Node) -> dict[str, Any]:
    return {
        "adminState": "NORMAL",
        "hostName": node.registration.data_host,
        "infoPort": node.registration.http_port,
        "ipAddr": node.registration.data_host,
        "ipcPort": 0,
        "networkLocation": node.rack,
        "storageID": node.id,
        "xferPort": node.registration.data_port,
    }


def server_defaults_json(trash_minutes: int) -> dict[str, Any]:
    """Return the defaults for new files, and how long trash is kept."""
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


def trash_roots_json(roots: Sequence[tuple[str, InodeStatus]]) -> dict[str, Any]:
    """Return statuses with paths, in the format that Hadoop's client expects only for trash roots."""
    return {
        "Paths": [
            {
                "access_time": status.accessed_ms,
                "block_replication": 0,
                "blocksize": 0,
                "group": status.group,
                "isdir": status.kind is InodeKind.DIRECTORY,
                "length": status.length,
                "modification_time": status.modified_ms,
                "owner": status.owner,
                "path": path,
                "permission": f"{status.permission:o}",
            }
            for path, status in roots
        ]
    }
