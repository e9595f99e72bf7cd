"""Calls about names over frames: each message to the operation that WebHDFS or REST calls for the same.

Nothing is decided here: rights, quotas, retry cache and words of refusals are the operations'. Ranges of arguments
are checked here, as the parser of WebHDFS does it for its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from peacefs.coordinator.limits import concat_sources_max, exchange_pairs_max, list_page_entries
from peacefs.coordinator.metadata.model import InodeKind, InodeStatus, RenameMode, TreeSummary
from peacefs.coordinator.namespace.attributes import SetFlag
from peacefs.coordinator.namespace.quotas import NO_LIMIT
from peacefs.coordinator.operations.files import Files
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.messages import (
    AclEntries,
    ChangeAcl,
    ChangeOwner,
    ChangePermission,
    ChangeQuota,
    ChangeReplication,
    ChangeTimes,
    ConcatFiles,
    CopyPath,
    DeletePath,
    DropSnapshot,
    ExchangePaths,
    FileInfo,
    GetAclEntries,
    GetFileInfo,
    GetListing,
    GetQuotaSums,
    GetServerSettings,
    GetTreeSums,
    GetXAttrs,
    Leased,
    Listing,
    Message,
    Mkdirs,
    NameChanged,
    NameStatus,
    OpenForAppend,
    QuotaSums,
    RecoverLease,
    RemoveXAttr,
    RenamePath,
    RenameTakenSnapshot,
    ReturnToSnapshot,
    ServerSettings,
    SetXAttr,
    SnapshotTaken,
    SwitchSnapshots,
    TakeSnapshot,
    TreeSums,
    TruncatePath,
    XAttrs,
)
from peacefs.protocol.values.account_names import check_account_name
from peacefs.protocol.values.acl_entries import parse_acl

_PERMISSION_MAX: Final = 0o1777
_DONE: Final = NameChanged()

#: Carries a call out for someone on a host.
NameHandler = Callable[[Files, Any, str | None], Awaitable[Message]]


def _row(status: InodeStatus) -> NameStatus:
    is_directory = status.kind is InodeKind.DIRECTORY
    return NameStatus(
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


def _sums(counted: TreeSummary) -> TreeSums:
    quotas = (NO_LIMIT if limit is None else limit for limit in (counted.names_max, counted.bytes_max))
    return TreeSums(counted.directories, counted.files, counted.length, counted.space_consumed, *quotas)


def _checked_permission(permission: int) -> int:
    if not 0 <= permission <= _PERMISSION_MAX:
        raise BadRequest(f"permission {permission:o} is out of range: 0 to {_PERMISSION_MAX:o}")
    return permission


# -- looking -----------------------------------------------------------------------------------------


async def _file_info(files: Files, asked: GetFileInfo, _host: str | None) -> FileInfo:
    return FileInfo(_row(await files.names.status(asked.path, asked.user)))


async def _listing(files: Files, asked: GetListing, _host: str | None) -> Listing:
    page = await files.names.list_page(asked.path, asked.user, asked.start_after or None, list_page_entries)
    return Listing([_row(status) for status in page.entries], page.remaining)


async def _tree_sums(files: Files, asked: GetTreeSums, _host: str | None) -> TreeSums:
    return _sums(await files.names.content_summary(asked.path, asked.user))


async def _quota_sums(files: Files, asked: GetQuotaSums, _host: str | None) -> QuotaSums:
    quota = await files.limiting.usage(asked.path, asked.user)
    names, space = (NO_LIMIT if limit is None else limit for limit in (quota.names_max, quota.bytes_max))
    return QuotaSums(quota.used.names, names, quota.used.bytes, space)


async def _xattrs(files: Files, asked: GetXAttrs, _host: str | None) -> XAttrs:
    return XAttrs(await files.attributes.values(asked.path, asked.user))


async def _acl_entries(files: Files, asked: GetAclEntries, _host: str | None) -> AclEntries:
    status = await files.names.status(asked.path, asked.user)
    return AclEntries(status.permission, status.acl or "")


async def _server_settings(files: Files, _asked: GetServerSettings, _host: str | None) -> ServerSettings:
    return ServerSettings(files.trash.kept_minutes)


# -- changing ----------------------------------------------------------------------------------------


async def _mkdirs(files: Files, asked: Mkdirs, _host: str | None) -> NameChanged:
    permission = _checked_permission(asked.permission)
    return NameChanged(await files.names.mkdirs(asked.path, asked.user, permission, asked.request_id))


async def _rename(files: Files, asked: RenamePath, _host: str | None) -> NameChanged:
    mode = RenameMode.OVERWRITE if asked.overwrite else RenameMode.STRICT
    return NameChanged(await files.names.rename(asked.path, asked.target, asked.user, mode, asked.request_id))


async def _exchange(files: Files, asked: ExchangePaths, _host: str | None) -> NameChanged:
    if not 0 < len(asked.pairs) <= exchange_pairs_max:
        raise BadRequest(f"{len(asked.pairs)} pairs of names are out of range: 1 to {exchange_pairs_max}")
    await files.names.exchange(asked.pairs, asked.user, asked.request_id)
    return _DONE


async def _delete(files: Files, asked: DeletePath, _host: str | None) -> NameChanged:
    return NameChanged(await files.names.delete(asked.path, asked.recursive, asked.user, asked.request_id))


async def _copy(files: Files, asked: CopyPath, _host: str | None) -> TreeSums:
    copied = await files.copying.copy(
        asked.path, asked.target, asked.user, preserve=asked.preserve, request_id=asked.request_id
    )
    return _sums(copied)


async def _change_permission(files: Files, asked: ChangePermission, _host: str | None) -> NameChanged:
    permission = _checked_permission(asked.permission)
    await files.names.set_permission(asked.path, asked.user, permission, asked.request_id)
    return _DONE


async def _change_owner(files: Files, asked: ChangeOwner, _host: str | None) -> NameChanged:
    owner, group = asked.owner or None, asked.group or None
    if owner is None and group is None:
        raise BadRequest("Both owner and group are empty.")
    for what, name in (("owner", owner), ("group", group)):
        if name is not None:
            check_account_name(what, name)
    await files.names.set_owner(asked.path, asked.user, owner, group, asked.request_id)
    return _DONE


async def _change_replication(files: Files, asked: ChangeReplication, _host: str | None) -> NameChanged:
    if asked.replication < 1:
        raise BadRequest(f"a replication of {asked.replication} is out of range: 1 is the least")
    done = await files.names.set_replication(asked.path, asked.user, asked.replication, asked.request_id)
    return NameChanged(done)


async def _change_times(files: Files, asked: ChangeTimes, _host: str | None) -> NameChanged:
    for moment in (asked.modified_ms, asked.accessed_ms):
        if moment is not None and moment < 0:
            raise BadRequest(f"a time of {moment} ms is out of range: 0 is the least")
    await files.names.set_times(asked.path, asked.user, asked.modified_ms, asked.accessed_ms, asked.request_id)
    return _DONE


async def _change_quota(files: Files, asked: ChangeQuota, _host: str | None) -> NameChanged:
    await files.limiting.set_quota(asked.path, asked.user, asked.names, asked.space, asked.request_id)
    return _DONE


async def _set_xattr(files: Files, asked: SetXAttr, _host: str | None) -> NameChanged:
    try:
        flags = frozenset(map(SetFlag, asked.flags))
    except ValueError:
        raise BadRequest(f"the flags {', '.join(asked.flags)} are not of CREATE and REPLACE") from None
    await files.attributes.set(asked.path, asked.user, asked.name, asked.value, flags, asked.request_id)
    return _DONE


async def _remove_xattr(files: Files, asked: RemoveXAttr, _host: str | None) -> NameChanged:
    await files.attributes.remove(asked.path, asked.user, asked.name, asked.request_id)
    return _DONE


async def _change_acl(files: Files, asked: ChangeAcl, _host: str | None) -> NameChanged:
    acls, path, user, request_id = files.acls, asked.path, asked.user, asked.request_id
    spec = tuple(parse_acl(asked.spec, with_permissions=asked.operation != "REMOVEACLENTRIES"))
    match asked.operation:
        case "MODIFYACLENTRIES" if spec:
            await acls.modify_entries(path, user, spec, request_id)
        case "REMOVEACLENTRIES" if spec:
            await acls.remove_entries(path, user, spec, request_id)
        case "MODIFYACLENTRIES" | "REMOVEACLENTRIES":
            raise BadRequest(f"{asked.operation} names no entries")
        case "SETACL":
            await acls.set_acl(path, user, spec, request_id)
        case "REMOVEDEFAULTACL":
            await acls.remove_default(path, user, request_id)
        case "REMOVEACL":
            await acls.remove_acl(path, user, request_id)
        case _:
            raise BadRequest(f"{asked.operation!r} is no operation on ACLs")
    return _DONE


async def _truncate(files: Files, asked: TruncatePath, _host: str | None) -> NameChanged:
    return NameChanged(await files.reshaping.truncate(asked.path, asked.length, asked.user, asked.request_id))


async def _concat(files: Files, asked: ConcatFiles, _host: str | None) -> NameChanged:
    if len(asked.sources) > concat_sources_max:
        raise BadRequest(f"{len(asked.sources)} files are too many to concatenate: at most {concat_sources_max}")
    await files.reshaping.concat(asked.path, asked.sources, asked.user, asked.request_id)
    return _DONE


async def _append_to_file(files: Files, asked: OpenForAppend, host: str | None) -> Leased:
    if not asked.holder:
        raise BadRequest("the holder of a lease has no name")
    return await files.appending.extend(asked.path, asked.user, asked.holder, host)


async def _recover_lease(files: Files, asked: RecoverLease, _host: str | None) -> NameChanged:
    return NameChanged(await files.appending.recover_lease(asked.path, asked.user))


# -- snapshots ---------------------------------------------------------------------------------------


async def _switch_snapshots(files: Files, asked: SwitchSnapshots, _host: str | None) -> NameChanged:
    switch = files.snapshots.allow if asked.allowed else files.snapshots.disallow
    await switch(asked.path, asked.user, asked.request_id)
    return _DONE


async def _take_snapshot(files: Files, asked: TakeSnapshot, _host: str | None) -> SnapshotTaken:
    return SnapshotTaken(
        await files.snapshots.create(asked.path, asked.user, asked.name or None, asked.request_id)
    )


async def _rename_snapshot(files: Files, asked: RenameTakenSnapshot, _host: str | None) -> NameChanged:
    await files.snapshots.rename(asked.path, asked.user, asked.name, asked.new_name, asked.request_id)
    return _DONE


async def _drop_snapshot(files: Files, asked: DropSnapshot, _host: str | None) -> NameChanged:
    await files.snapshots.delete(asked.path, asked.user, asked.name, asked.request_id)
    return _DONE


async def _return_to_snapshot(files: Files, asked: ReturnToSnapshot, _host: str | None) -> NameChanged:
    await files.snapshots.restore(asked.path, asked.user, asked.name, asked.request_id)
    return _DONE


#: Every call about names, with what carries it out.
NAME_HANDLERS: Final[Mapping[type[Message], NameHandler]] = {
    GetFileInfo: _file_info,
    GetListing: _listing,
    GetTreeSums: _tree_sums,
    GetQuotaSums: _quota_sums,
    GetXAttrs: _xattrs,
    GetAclEntries: _acl_entries,
    GetServerSettings: _server_settings,
    Mkdirs: _mkdirs,
    RenamePath: _rename,
    ExchangePaths: _exchange,
    DeletePath: _delete,
    CopyPath: _copy,
    ChangePermission: _change_permission,
    ChangeOwner: _change_owner,
    ChangeReplication: _change_replication,
    ChangeTimes: _change_times,
    ChangeQuota: _change_quota,
    SetXAttr: _set_xattr,
    RemoveXAttr: _remove_xattr,
    ChangeAcl: _change_acl,
    TruncatePath: _truncate,
    ConcatFiles: _concat,
    OpenForAppend: _append_to_file,
    RecoverLease: _recover_lease,
    SwitchSnapshots: _switch_snapshots,
    TakeSnapshot: _take_snapshot,
    RenameTakenSnapshot: _rename_snapshot,
    DropSnapshot: _drop_snapshot,
    ReturnToSnapshot: _return_to_snapshot,
}
