"""Methods of ClientNamenodeProtocol about snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from peacefs.coordinator.limits import snapshots_per_directory_max
from peacefs.coordinator.namespace.snapshot_diff import Difference, DiffKind
from peacefs.protocol import messages as m
from peacefs.protocol.hadoop import attributes_pb2 as pb
from peacefs.protocol.hadoop.hdfs_pb2 import (
    SnapshotDiffReportEntryProto,
    SnapshotDiffReportListingEntryProto,
    SnapshotDiffReportListingProto,
    SnapshotDiffReportProto,
    SnapshotListingProto,
    SnapshotStatusProto,
    SnapshottableDirectoryListingProto,
    SnapshottableDirectoryStatusProto,
)

from .method import Method, MethodCall
from .statuses import status_proto

#: HDFS's letters for the kinds of changes.
_LABELS: Final = {DiffKind.CREATE: "+", DiffKind.MODIFY: "M", DiffKind.DELETE: "-", DiffKind.RENAME: "R"}


async def _create(call: MethodCall, asked: pb.CreateSnapshotRequestProto) -> pb.CreateSnapshotResponseProto:
    taken = m.TakeSnapshot(asked.snapshotRoot, call.user, request_id=call.request_id, name=asked.snapshotName)
    return pb.CreateSnapshotResponseProto(snapshotPath=await call.name(taken))


async def _rename(call: MethodCall, asked: pb.RenameSnapshotRequestProto) -> pb.RenameSnapshotResponseProto:
    await call.name(
        m.RenameTakenSnapshot(
            asked.snapshotRoot,
            call.user,
            request_id=call.request_id,
            name=asked.snapshotOldName,
            new_name=asked.snapshotNewName,
        )
    )
    return pb.RenameSnapshotResponseProto()


async def _delete(call: MethodCall, asked: pb.DeleteSnapshotRequestProto) -> pb.DeleteSnapshotResponseProto:
    await call.name(
        m.DropSnapshot(asked.snapshotRoot, call.user, request_id=call.request_id, name=asked.snapshotName)
    )
    return pb.DeleteSnapshotResponseProto()


async def _switch(call: MethodCall, path: str, *, allowed: bool) -> None:
    await call.name(m.SwitchSnapshots(path, call.user, request_id=call.request_id, allowed=allowed))


async def _allow(call: MethodCall, asked: pb.AllowSnapshotRequestProto) -> pb.AllowSnapshotResponseProto:
    await _switch(call, asked.snapshotRoot, allowed=True)
    return pb.AllowSnapshotResponseProto()


async def _disallow(call: MethodCall, asked: pb.DisallowSnapshotRequestProto) -> pb.DisallowSnapshotResponseProto:
    await _switch(call, asked.snapshotRoot, allowed=False)
    return pb.DisallowSnapshotResponseProto()


async def _directories(
    call: MethodCall, asked: pb.GetSnapshottableDirListingRequestProto
) -> pb.GetSnapshottableDirListingResponseProto:
    found = await call.files.snapshots.directories(call.user)
    if not found:
        return pb.GetSnapshottableDirListingResponseProto()
    listed = [
        SnapshottableDirectoryStatusProto(
            dirStatus=status_proto(one.status),
            snapshot_quota=snapshots_per_directory_max,
            snapshot_number=one.snapshots,
            parent_fullpath=one.parent.encode(),
        )
        for one in found
    ]
    listing = SnapshottableDirectoryListingProto(snapshottableDirListing=listed)
    return pb.GetSnapshottableDirListingResponseProto(snapshottableDirList=listing)


async def _list(call: MethodCall, asked: pb.GetSnapshotListingRequestProto) -> pb.GetSnapshotListingResponseProto:
    found = await call.files.snapshots.listing(asked.snapshotRoot, call.user)
    listed = [
        SnapshotStatusProto(
            dirStatus=status_proto(one.status),
            snapshotID=one.at_tx & 0xFFFFFFFF,
            parent_fullpath=asked.snapshotRoot.encode(),
            isDeleted=False,
        )
        for one in found
    ]
    return pb.GetSnapshotListingResponseProto(snapshotList=SnapshotListingProto(snapshotListing=listed))


async def _compare(
    call: MethodCall, asked: pb.GetSnapshotDiffReportRequestProto | pb.GetSnapshotDiffReportListingRequestProto
) -> list[Difference]:
    return await call.files.snapshots.diff(asked.snapshotRoot, call.user, asked.fromSnapshot, asked.toSnapshot)


async def _diff(
    call: MethodCall, asked: pb.GetSnapshotDiffReportRequestProto
) -> pb.GetSnapshotDiffReportResponseProto:
    entries = [
        SnapshotDiffReportEntryProto(
            fullpath=one.path.encode(),
            modificationLabel=_LABELS[one.kind],
            targetPath=None if one.target is None else one.target.encode(),
        )
        for one in await _compare(call, asked)
    ]
    return pb.GetSnapshotDiffReportResponseProto(
        diffReport=SnapshotDiffReportProto(
            snapshotRoot=asked.snapshotRoot,
            fromSnapshot=asked.fromSnapshot,
            toSnapshot=asked.toSnapshot,
            diffReportEntries=entries,
        )
    )


async def _diff_listing(
    call: MethodCall, asked: pb.GetSnapshotDiffReportListingRequestProto
) -> pb.GetSnapshotDiffReportListingResponseProto:
    return pb.GetSnapshotDiffReportListingResponseProto(diffReport=_listed(await _compare(call, asked)))


def _listed(differences: Iterable[Difference]) -> SnapshotDiffReportListingProto:
    """Return all differences as one page. The client arranges them by directory."""
    listing = SnapshotDiffReportListingProto(isFromEarlier=True)
    for one in differences:
        entry = SnapshotDiffReportListingEntryProto(
            fullpath=one.path.encode(),
            dirId=one.parent,
            isReference=one.kind is DiffKind.RENAME,
            fileId=one.inode,
        )
        if one.kind is DiffKind.MODIFY:
            entry.dirId, entry.isReference = one.inode, one.is_directory
            listing.modifiedEntries.append(entry)
        elif one.kind is DiffKind.CREATE:
            listing.createdEntries.append(entry)
        elif one.kind is DiffKind.DELETE:
            listing.deletedEntries.append(entry)
        else:
            target = (one.target or "").encode()
            made = SnapshotDiffReportListingEntryProto(
                fullpath=target, dirId=one.new_parent, isReference=True, fileId=one.inode
            )
            entry.targetPath = target
            listing.deletedEntries.append(entry)
            listing.createdEntries.append(made)
    return listing


def _root(asked: Any) -> str:
    root: str = asked.snapshotRoot
    return root


SNAPSHOT_METHODS: Final[Mapping[str, Method]] = {
    "createSnapshot": Method(pb.CreateSnapshotRequestProto, _create, path=_root),
    "renameSnapshot": Method(pb.RenameSnapshotRequestProto, _rename, path=_root),
    "deleteSnapshot": Method(pb.DeleteSnapshotRequestProto, _delete, path=_root),
    "allowSnapshot": Method(pb.AllowSnapshotRequestProto, _allow, path=_root),
    "disallowSnapshot": Method(pb.DisallowSnapshotRequestProto, _disallow, path=_root),
    "getSnapshottableDirListing": Method(pb.GetSnapshottableDirListingRequestProto, _directories, is_read=True),
    "getSnapshotListing": Method(pb.GetSnapshotListingRequestProto, _list, is_read=True, path=_root),
    "getSnapshotDiffReport": Method(pb.GetSnapshotDiffReportRequestProto, _diff, is_read=True, path=_root),
    "getSnapshotDiffReportListing": Method(
        pb.GetSnapshotDiffReportListingRequestProto, _diff_listing, is_read=True, path=_root
    ),
}
