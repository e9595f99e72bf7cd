"""WebHDFS operations on snapshots, and their JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peacefs.coordinator.limits import snapshots_per_directory_max
from peacefs.coordinator.namespace.snapshot_diff import Difference, DiffKind
from peacefs.coordinator.namespace.snapshots import ListedSnapshot, SnapshottableDirectory
from peacefs.coordinator.operations.snapshots import SnapshotOperations
from peacefs.protocol.asgi import Scope
from peacefs.protocol.webhdfs.answers import Answer, empty_answer, json_answer
from peacefs.protocol.webhdfs.request import Request
from peacefs.protocol.webhdfs.snapshot_requests import (
    AllowSnapshots,
    CreateSnapshot,
    DeleteSnapshot,
    DisallowSnapshots,
    GetSnapshotDiff,
    GetSnapshotDiffListing,
    GetSnapshots,
    GetSnapshottableDirectories,
    RenameSnapshot,
)

from .webhdfs_handlers import Handler
from .webhdfs_json import status_json


class SnapshotHandlers:
    """Answers requests about snapshots. `WebHdfs` adds its handlers to its own."""

    def __init__(self, snapshots: SnapshotOperations) -> None:
        self._snapshots = snapshots
        self.handlers: dict[type[Request], Handler] = {
            AllowSnapshots: self._allow_snapshots,
            DisallowSnapshots: self._disallow_snapshots,
            CreateSnapshot: self._create_snapshot,
            RenameSnapshot: self._rename_snapshot,
            DeleteSnapshot: self._delete_snapshot,
            GetSnapshottableDirectories: self._get_snapshottable_directories,
            GetSnapshots: self._get_snapshots,
            GetSnapshotDiff: self._get_snapshot_diff,
            GetSnapshotDiffListing: self._get_snapshot_diff_listing,
        }

    async def _allow_snapshots(self, asked: AllowSnapshots, _scope: Scope) -> Answer:
        await self._snapshots.allow(asked.path, asked.user, asked.request_id)
        return empty_answer()

    async def _disallow_snapshots(self, asked: DisallowSnapshots, _scope: Scope) -> Answer:
        await self._snapshots.disallow(asked.path, asked.user, asked.request_id)
        return empty_answer()

    async def _create_snapshot(self, asked: CreateSnapshot, _scope: Scope) -> Answer:
        path = await self._snapshots.create(asked.path, asked.user, asked.name, asked.request_id)
        return json_answer({"Path": path})

    async def _rename_snapshot(self, asked: RenameSnapshot, _scope: Scope) -> Answer:
        await self._snapshots.rename(asked.path, asked.user, asked.name, asked.new_name, asked.request_id)
        return empty_answer()

    async def _delete_snapshot(self, asked: DeleteSnapshot, _scope: Scope) -> Answer:
        await self._snapshots.delete(asked.path, asked.user, asked.name, asked.request_id)
        return empty_answer()

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
