"""Methods of ClientNamenodeProtocol about names: list, create, move, delete, and set attributes."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Final

from peacefs.coordinator.metadata.model import InodeKind, InodeStatus, ListPage
from peacefs.coordinator.namespace.permissions import Access
from peacefs.protocol import messages as m
from peacefs.protocol.errors import BadRequest, FileNotFound, IllegalChange, PathError, Unsupported
from peacefs.protocol.hadoop import namenode_pb2 as pb
from peacefs.protocol.hadoop.hdfs_pb2 import (
    BatchedDirectoryListingProto,
    DirectoryListingProto,
    HdfsFileStatusProto,
    RemoteExceptionProto,
)
from peacefs.protocol.hadoop.rpc_codec import length_delimited, varint

from .block_methods import located_status
from .method import Method, MethodCall
from .statuses import (
    content_summary_proto,
    encoded_status,
    hot_policy_proto,
    quota_usage_proto,
    signed,
    status_proto,
)

#: Tags of the fields of the answers that are encoded here: a status, a listing, its entries, and what remains.
_FILE_INFO_FS: Final = b"\x0a"
_LISTING: Final = b"\x0a"
_LISTED: Final = b"\x0a"
_REMAINING: Final = b"\x10"
#: HDFS's value for "do not change this quota".
_QUOTA_UNCHANGED: Final = 2**63 - 1
#: The digits of an index into the paths of one request.
_INDEX_DIGITS_MAX: Final = 9
#: HDFS's storage policies for storage types that do not exist here.
_OTHER_POLICIES: Final = ("ALL_NVDIMM", "ALL_SSD", "COLD", "LAZY_PERSIST", "ONE_SSD", "PROVIDED", "WARM")


def _status(call: MethodCall, path: str) -> Coroutine[Any, Any, InodeStatus]:
    return call.name(m.GetFileInfo(path, call.user))


async def _get_file_info(call: MethodCall, asked: pb.GetFileInfoRequestProto) -> bytes:
    try:
        status = await _status(call, call.path(asked.src))
    except FileNotFound:
        return b""
    return length_delimited(_FILE_INFO_FS, encoded_status(status))


async def _get_link_info(
    call: MethodCall, asked: pb.GetFileLinkInfoRequestProto
) -> pb.GetFileLinkInfoResponseProto:
    try:
        return pb.GetFileLinkInfoResponseProto(fs=status_proto(await _status(call, asked.src)))
    except FileNotFound:
        return pb.GetFileLinkInfoResponseProto()


async def _get_located_info(
    call: MethodCall, asked: pb.GetLocatedFileInfoRequestProto
) -> pb.GetLocatedFileInfoResponseProto:
    try:
        path = call.path(asked.src)
        status = await _status(call, path)
        return pb.GetLocatedFileInfoResponseProto(fs=await located_status(call, path, status))
    except FileNotFound:
        return pb.GetLocatedFileInfoResponseProto()


async def _page(call: MethodCall, path: str, after: bytes) -> ListPage:
    """Return the page of a directory listing that follows a name."""
    page: ListPage = await call.name(m.GetListing(path, call.user, start_after=after.decode(errors="replace")))
    return page


async def _listed(
    call: MethodCall, path: str, page: ListPage, *, needs_location: bool
) -> list[HdfsFileStatusProto]:
    return [
        await located_status(call, _child(path, status), status)
        if needs_location and status.kind is InodeKind.FILE
        else status_proto(status)
        for status in page.entries
    ]


def _child(path: str, status: InodeStatus) -> str:
    return f"{path.rstrip('/')}/{status.name}" if status.name else path


async def _get_listing(call: MethodCall, asked: pb.GetListingRequestProto) -> bytes | pb.GetListingResponseProto:
    try:
        path = call.path(asked.src)
        page = await _page(call, path, asked.startAfter)
        if not asked.needLocation:
            return _encoded_listing(page)
        listing = DirectoryListingProto(
            partialListing=await _listed(call, path, page, needs_location=True), remainingEntries=page.remaining
        )
    except FileNotFound:
        return pb.GetListingResponseProto()
    return pb.GetListingResponseProto(dirList=listing)


def _encoded_listing(page: ListPage) -> bytes:
    """Return a GetListingResponseProto as bytes."""
    parts: list[bytes] = []
    for status in page.entries:
        raw = encoded_status(status)
        parts += _LISTED, varint(len(raw)), raw
    parts += _REMAINING, varint(page.remaining)
    return length_delimited(_LISTING, b"".join(parts))


async def _get_batched_listing(
    call: MethodCall, asked: pb.GetBatchedListingRequestProto
) -> pb.GetBatchedListingResponseProto:
    """Return a page of one directory. `startAfter` contains the directory's index and a name.

    Raises BadRequest if this server has not made `startAfter`.
    """
    number, _, after = asked.startAfter.partition(b"/")
    if len(number) > _INDEX_DIGITS_MAX or not (number or b"0").isdigit():
        raise BadRequest("startAfter is not from an answer of this server")
    at = int(number or b"0")
    if at >= len(asked.paths):
        return pb.GetBatchedListingResponseProto(hasMore=False, startAfter=b"")
    listing = BatchedDirectoryListingProto(parentIdx=at)
    remaining = 0
    try:
        path = asked.paths[at]
        page = await _page(call, path, after)
        listing.partialListing.extend(await _listed(call, path, page, needs_location=asked.needLocation))
        remaining = page.remaining
    except PathError as error:
        listing.exception.CopyFrom(RemoteExceptionProto(className=error.hadoop_class, message=error.message))
    name = listing.partialListing[-1].path if remaining else b""
    following = at if remaining else at + 1
    return pb.GetBatchedListingResponseProto(
        listings=[listing],
        hasMore=following < len(asked.paths),
        startAfter=str(following).encode() + b"/" + name,
    )


async def _mkdirs(call: MethodCall, asked: pb.MkdirsRequestProto) -> pb.MkdirsResponseProto:
    if not asked.createParent:
        await _check_parent(call, asked.src)
    unmasked = asked.unmasked.perm if asked.HasField("unmasked") else None
    made = m.Mkdirs(
        asked.src, call.user, request_id=call.request_id, permission=asked.masked.perm, unmasked=unmasked
    )
    return pb.MkdirsResponseProto(result=await call.name(made))


async def _check_parent(call: MethodCall, path: str) -> None:
    parent = path.rstrip("/").rpartition("/")[0] or "/"
    try:
        await call.files.names.status(parent, call.user)
    except FileNotFound:
        raise FileNotFound(f"Parent directory doesn't exist: {parent}") from None


async def _rename(call: MethodCall, asked: pb.RenameRequestProto) -> pb.RenameResponseProto:
    renamed = m.RenamePath(
        asked.src, call.user, request_id=call.request_id, target=asked.dst, overwrite=False, is_legacy=True
    )
    return pb.RenameResponseProto(result=await call.name(renamed))


async def _rename2(call: MethodCall, asked: pb.Rename2RequestProto) -> pb.Rename2ResponseProto:
    await call.name(
        m.RenamePath(
            asked.src, call.user, request_id=call.request_id, target=asked.dst, overwrite=asked.overwriteDest
        )
    )
    return pb.Rename2ResponseProto()


async def _delete(call: MethodCall, asked: pb.DeleteRequestProto) -> pb.DeleteResponseProto:
    deleted = m.DeletePath(asked.src, call.user, request_id=call.request_id, recursive=asked.recursive)
    return pb.DeleteResponseProto(result=await call.name(deleted))


async def _concat(call: MethodCall, asked: pb.ConcatRequestProto) -> pb.ConcatResponseProto:
    await call.name(m.ConcatFiles(asked.trg, call.user, request_id=call.request_id, sources=list(asked.srcs)))
    return pb.ConcatResponseProto()


async def _set_permission(call: MethodCall, asked: pb.SetPermissionRequestProto) -> pb.SetPermissionResponseProto:
    await call.name(
        m.ChangePermission(asked.src, call.user, request_id=call.request_id, permission=asked.permission.perm)
    )
    return pb.SetPermissionResponseProto()


async def _set_owner(call: MethodCall, asked: pb.SetOwnerRequestProto) -> pb.SetOwnerResponseProto:
    owner, group = asked.username or None, asked.groupname or None
    await call.name(m.ChangeOwner(asked.src, call.user, request_id=call.request_id, owner=owner, group=group))
    return pb.SetOwnerResponseProto()


async def _set_times(call: MethodCall, asked: pb.SetTimesRequestProto) -> pb.SetTimesResponseProto:
    modified_ms, accessed_ms = (None if signed(each) < 0 else each for each in (asked.mtime, asked.atime))
    await call.name(
        m.ChangeTimes(
            asked.src, call.user, request_id=call.request_id, modified_ms=modified_ms, accessed_ms=accessed_ms
        )
    )
    return pb.SetTimesResponseProto()


async def _set_replication(
    call: MethodCall, asked: pb.SetReplicationRequestProto
) -> pb.SetReplicationResponseProto:
    changed = m.ChangeReplication(asked.src, call.user, request_id=call.request_id, replication=asked.replication)
    return pb.SetReplicationResponseProto(result=await call.name(changed))


async def _get_summary(
    call: MethodCall, asked: pb.GetContentSummaryRequestProto
) -> pb.GetContentSummaryResponseProto:
    counted = await call.name(m.GetTreeSums(asked.path, call.user))
    return pb.GetContentSummaryResponseProto(summary=content_summary_proto(counted))


async def _get_quota_usage(call: MethodCall, asked: pb.GetQuotaUsageRequestProto) -> pb.GetQuotaUsageResponseProto:
    quota = await call.name(m.GetQuotaSums(asked.path, call.user))
    return pb.GetQuotaUsageResponseProto(usage=quota_usage_proto(quota))


async def _set_quota(call: MethodCall, asked: pb.SetQuotaRequestProto) -> pb.SetQuotaResponseProto:
    if asked.HasField("storageType"):
        raise Unsupported("quotas by storage type are not supported: all storage is of one type, DISK")
    names, space = (
        None if number == _QUOTA_UNCHANGED else signed(number)
        for number in (asked.namespaceQuota, asked.storagespaceQuota)
    )
    await call.name(m.ChangeQuota(asked.path, call.user, request_id=call.request_id, names=names, space=space))
    return pb.SetQuotaResponseProto()


async def _check_access(call: MethodCall, asked: pb.CheckAccessRequestProto) -> pb.CheckAccessResponseProto:
    await call.files.names.check_access(asked.path, call.user, Access(asked.mode))
    return pb.CheckAccessResponseProto()


async def _get_block_size(
    call: MethodCall, asked: pb.GetPreferredBlockSizeRequestProto
) -> pb.GetPreferredBlockSizeResponseProto:
    return pb.GetPreferredBlockSizeResponseProto(bsize=(await _status(call, asked.filename)).block_bytes)


async def _get_link_target(call: MethodCall, asked: pb.GetLinkTargetRequestProto) -> pb.GetLinkTargetResponseProto:
    await _status(call, asked.path)
    raise PathError(f"Path {asked.path} is not a symbolic link")


async def _get_enclosing_root(
    call: MethodCall, asked: pb.GetEnclosingRootRequestProto
) -> pb.GetEnclosingRootResponseProto:
    return pb.GetEnclosingRootResponseProto(enclosingRootPath="/")


async def _get_storage_policy(
    call: MethodCall, asked: pb.GetStoragePolicyRequestProto
) -> pb.GetStoragePolicyResponseProto:
    await _status(call, asked.path)
    return pb.GetStoragePolicyResponseProto(storagePolicy=hot_policy_proto())


async def _get_storage_policies(
    call: MethodCall, asked: pb.GetStoragePoliciesRequestProto
) -> pb.GetStoragePoliciesResponseProto:
    return pb.GetStoragePoliciesResponseProto(policies=[hot_policy_proto()])


async def _set_storage_policy(
    call: MethodCall, asked: pb.SetStoragePolicyRequestProto
) -> pb.SetStoragePolicyResponseProto:
    name = asked.policyName.upper()
    if name in _OTHER_POLICIES:
        raise Unsupported(f"the storage policy {name} is not supported: all storage is of one type, DISK")
    if name != "HOT":
        raise IllegalChange(f"Cannot find a block policy with the name {asked.policyName}")
    await call.files.names.check_access(asked.src, call.user, Access.WRITE)
    return pb.SetStoragePolicyResponseProto()


async def _unset_storage_policy(
    call: MethodCall, asked: pb.UnsetStoragePolicyRequestProto
) -> pb.UnsetStoragePolicyResponseProto:
    await call.files.names.check_access(asked.src, call.user, Access.WRITE)
    return pb.UnsetStoragePolicyResponseProto()


def _path(asked: Any) -> str:
    path: str = asked.path
    return path


NAME_METHODS: Final[Mapping[str, Method]] = {
    "getFileInfo": Method(pb.GetFileInfoRequestProto, _get_file_info, is_read=True),
    "getFileLinkInfo": Method(pb.GetFileLinkInfoRequestProto, _get_link_info, is_read=True),
    "getLocatedFileInfo": Method(pb.GetLocatedFileInfoRequestProto, _get_located_info, is_read=True),
    "getListing": Method(pb.GetListingRequestProto, _get_listing, is_read=True),
    "getBatchedListing": Method(
        pb.GetBatchedListingRequestProto,
        _get_batched_listing,
        is_read=True,
        path=lambda asked: asked.paths[0] if asked.paths else None,
    ),
    "mkdirs": Method(pb.MkdirsRequestProto, _mkdirs),
    "rename": Method(pb.RenameRequestProto, _rename),
    "rename2": Method(pb.Rename2RequestProto, _rename2),
    "delete": Method(pb.DeleteRequestProto, _delete),
    "concat": Method(pb.ConcatRequestProto, _concat, path=lambda asked: asked.trg),
    "setPermission": Method(pb.SetPermissionRequestProto, _set_permission),
    "setOwner": Method(pb.SetOwnerRequestProto, _set_owner),
    "setTimes": Method(pb.SetTimesRequestProto, _set_times),
    "setReplication": Method(pb.SetReplicationRequestProto, _set_replication),
    "getContentSummary": Method(pb.GetContentSummaryRequestProto, _get_summary, is_read=True, path=_path),
    "getQuotaUsage": Method(pb.GetQuotaUsageRequestProto, _get_quota_usage, is_read=True, path=_path),
    "setQuota": Method(pb.SetQuotaRequestProto, _set_quota, path=_path),
    "checkAccess": Method(pb.CheckAccessRequestProto, _check_access, is_read=True, path=_path),
    "getPreferredBlockSize": Method(
        pb.GetPreferredBlockSizeRequestProto, _get_block_size, is_read=True, path=lambda asked: asked.filename
    ),
    "getLinkTarget": Method(pb.GetLinkTargetRequestProto, _get_link_target, is_read=True, path=_path),
    "getEnclosingRoot": Method(
        pb.GetEnclosingRootRequestProto, _get_enclosing_root, is_read=True, path=lambda asked: asked.filename
    ),
    "getStoragePolicy": Method(pb.GetStoragePolicyRequestProto, _get_storage_policy, is_read=True, path=_path),
    "getStoragePolicies": Method(pb.GetStoragePoliciesRequestProto, _get_storage_policies, is_read=True),
    "setStoragePolicy": Method(pb.SetStoragePolicyRequestProto, _set_storage_policy),
    "unsetStoragePolicy": Method(pb.UnsetStoragePolicyRequestProto, _unset_storage_policy),
}
