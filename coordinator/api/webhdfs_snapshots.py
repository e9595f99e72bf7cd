"""WebHDFS operations on snapshots, and their JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peacefs.coordinator.calls.webhdfs_json import status_json
from peacefs.coordinator.limits import snapshots_per_directory_max
from peacefs.coordinator.namespace.snapshot_diff import Difference, DiffKind
from peacefs.coordinator.namespace.snapshots import ListedSnapshot, SnapshottableDirectory
from peacefs.coordinator.operations.snapshots import SnapshotOperations
from peacefs.protocol.asgi import Scope
from peacefs.protocol.webhdfs.answers import Answer, json_answer
from peacefs.protocol.webhdfs.request import Request
from peacefs.protocol.webhdfs.snapshot_requests import (
    GetSnapshotDiff,
    GetSnapshotDiffListing,
    GetSnapshots,
    GetSnapshottableDirectories,
)

from .webhdfs_handlers import Handler


class SnapshotHandlers:
    """Answers requests about snapshots. `WebHdfs` adds its handlers to its own."""

    def __init__(self, snapshots: SnapshotOperations) -> None:
        self._snapshots = snapshots
        self.handlers: dict[type[Request], Handler] = {
            GetSnapshottableDirectories: self._get_snapshottable_directories,
            GetSnapshots: self._get_snapshots,
            GetSnapshotDiff: self._get_snapshot_diff,
            GetSnapshotDiffListing: self._get_snapshot_diff_listing,
        }

    async def _get_snapshottable_directories(self, asked: GetSnapshottableDirectories, _scope: Scope) -> Answer:
        return json_answer(snapshottable_directories_json(await self._snapshots.directories(asked.user)))

    async def _get_snapshots(self, asked: GetSnapshots, _scope: Scope) -> Answer:
        found = await self._snapshots.listing(asked.path, asked.user)
        return json_answer(snapshots_json(asked.path, found))

    async def _get_snapshot_diff(self, asked: GetSnapshotDiff, _scope: Scope) -> Answer:
        found = await self._snapshots.diff(asked.path, asked.user, asked.older, asked.newer)
        return json_answer(snapshot_diff_json(asked.path, asked.older, asked.newer, found))

    async def _get_snapshot_diff_listing(self, asked: GetSnapshotDiffListing, _scope: Scope) -> Answer:
        found = await self._snapshots.diff(asked.path, asked.user, asked.older, asked.newer)
        return json_answer(snapshot_diff_listing_json(found))


def snapshot_diff_json(path: str, older: str, newer: str, differences: Sequence[Difference]) -> dict[str, Any]:
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


def snapshottable_directories_json(found: Sequence[SnapshottableDirectory]) -> dict[str, Any]:
    return {
        "SnapshottableDirectoryList": [
            {
                "dirStatus": status_json(one.status),
                "parentFullPath": one.parent,
                "snapshotNumber": one.snapshots,
                "snapshotQuota": snapshots_per_directory_max,
            }
            for one in found
        ]
    }


def snapshots_json(path: str, found: Sequence[ListedSnapshot]) -> dict[str, Any]:
    return {
        "SnapshotList": [
            {
                "deletionStatus": "ACTIVE",
                "dirStatus": status_json(one.status),
                "parentFullPath": path,
                "snapshotID": one.at_tx,
            }
            for one in found
        ]
    }


def snapshot_diff_listing_json(differences: Sequence[Difference]) -> dict[str, Any]:
    """Return all differences, in the format for clients that combine pages; `lastIndex` -1 says there are no more.

    `isReference` marks directories among the modified entries, and renamed entries among the others.
    """
    modified, created, deleted = [], [], []
    for one in differences:
        entry = {
            "dirId": one.parent,
            "fileId": one.inode,
            "isReference": one.kind is DiffKind.RENAME,
            "sourcePath": one.path,
        }
        if one.kind is DiffKind.MODIFY:
            modified.append(entry | {"dirId": one.inode, "isReference": one.is_directory})
        elif one.kind is DiffKind.CREATE:
            created.append(entry)
        elif one.kind is DiffKind.DELETE:
            deleted.append(entry)
        else:
            deleted.append(entry | {"targetPath": one.target})
            created.append(entry | {"dirId": one.new_parent, "sourcePath": one.target})
    return {
        "SnapshotDiffReportListing": {
            "createList": created,
            "deleteList": deleted,
            "isFromEarlier": True,
            "lastIndex": -1,
            "lastPath": "",
            "modifyList": modified,
        }
    }
