"""The table of the operations on names.

A row has the operation's message, the function that carries it out, the answer over frames, the forms of the
operation in WebHDFS, and its destination in the audit log. The function checks the ranges of arguments, so frames
and WebHDFS have the same limits; WebHDFS checks some arguments earlier, with Hadoop's messages. The functions of
`operations/` check permissions and quotas, and use the retry cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from peacefs.coordinator.limits import concat_sources_max, exchange_pairs_max, list_page_entries
from peacefs.coordinator.metadata.model import RenameMode
from peacefs.coordinator.namespace.attributes import SetFlag
from peacefs.coordinator.operations.files import Files
from peacefs.protocol import messages as m
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.limits import replication_default
from peacefs.protocol.webhdfs.answers import Answer, boolean_answer, empty_answer, json_answer
from peacefs.protocol.webhdfs.query import RequestQuery

from . import frame_replies
from . import webhdfs_fields as fields
from .name_row import Form, Row
from .webhdfs_json import (
    acl_json,
    content_summary_json,
    page_json,
    quota_usage_json,
    server_defaults_json,
    status_json,
)

_PERMISSION_MAX: Final = 0o1777

# -- answers over WebHDFS ----------------------------------------------------------------------------


def _empty(_result: object, _asked: m.Message) -> Answer:
    return empty_answer()


def _boolean(done: bool, _asked: m.Message) -> Answer:
    return boolean_answer(done)


def _renamed(done: bool, asked: m.RenamePath) -> Answer:
    return boolean_answer(done) if asked.is_legacy else empty_answer()


def _attribute_names(found: Mapping[str, bytes], _asked: m.Message) -> Answer:
    # As in HDFS, the value is itself a JSON text.
    return json_answer({"XAttrNames": msgspec.json.encode(list(found)).decode()})


def _acl_form(operation: str, *, needs_entries: bool = False) -> Form:
    def acl_fields(query: RequestQuery) -> dict[str, Any]:
        spec = query.required("aclspec") if needs_entries else query.text("aclspec") or ""
        return {"operation": operation, "spec": spec if needs_entries or operation == "SETACL" else ""}

    return Form("PUT", operation, _empty, acl_fields)


# -- ranges of arguments -----------------------------------------------------------------------------


def _checked_permission(permission: int) -> int:
    if not 0 <= permission <= _PERMISSION_MAX:
        raise BadRequest(f"permission {permission:o} is out of range: 0 to {_PERMISSION_MAX:o}")
    return permission


async def _mkdirs(files: Files, asked: m.Mkdirs, _host: str | None) -> bool:
    permission = _checked_permission(asked.permission)
    return await files.names.mkdirs(asked.path, asked.user, permission, asked.request_id, asked.unmasked)


async def _rename(files: Files, asked: m.RenamePath, _host: str | None) -> bool:
    mode = RenameMode.OVERWRITE if asked.overwrite else RenameMode.LEGACY if asked.is_legacy else RenameMode.STRICT
    return await files.names.rename(asked.path, asked.target, asked.user, mode, asked.request_id)


async def _exchange(files: Files, asked: m.ExchangePaths, _host: str | None) -> None:
    if not 0 < len(asked.pairs) <= exchange_pairs_max:
        raise BadRequest(f"{len(asked.pairs)} pairs of names are out of range: 1 to {exchange_pairs_max}")
    await files.names.exchange(asked.pairs, asked.user, asked.request_id)


async def _change_permission(files: Files, asked: m.ChangePermission, _host: str | None) -> None:
    permission = _checked_permission(asked.permission)
    await files.names.set_permission(asked.path, asked.user, permission, asked.request_id)


async def _change_owner(files: Files, asked: m.ChangeOwner, _host: str | None) -> None:
    owner, group = fields.checked_owners(asked.owner, asked.group)
    await files.names.set_owner(asked.path, asked.user, owner, group, asked.request_id)


async def _change_replication(files: Files, asked: m.ChangeReplication, _host: str | None) -> bool:
    if asked.replication < 1:
        raise BadRequest(f"a replication of {asked.replication} is out of range: 1 is the least")
    return await files.names.set_replication(asked.path, asked.user, asked.replication, asked.request_id)


async def _change_times(files: Files, asked: m.ChangeTimes, _host: str | None) -> None:
    for moment in (asked.modified_ms, asked.accessed_ms):
        if moment is not None and moment < 0:
            raise BadRequest(f"a time of {moment} ms is out of range: 0 is the least")
    await files.names.set_times(asked.path, asked.user, asked.modified_ms, asked.accessed_ms, asked.request_id)


async def _set_xattr(files: Files, asked: m.SetXAttr, _host: str | None) -> None:
    try:
        flags = frozenset(map(SetFlag, asked.flags))
    except ValueError:
        raise BadRequest(f"the flags {', '.join(asked.flags)} are not of CREATE and REPLACE") from None
    await files.attributes.set(asked.path, asked.user, asked.name, asked.value, flags, asked.request_id)


async def _concat(files: Files, asked: m.ConcatFiles, _host: str | None) -> None:
    if len(asked.sources) > concat_sources_max:
        raise BadRequest(f"{len(asked.sources)} files are too many to concatenate: at most {concat_sources_max}")
    await files.reshaping.concat(asked.path, asked.sources, asked.user, asked.request_id)


async def _append(files: Files, asked: m.OpenForAppend, host: str | None) -> m.Leased:
    if not asked.holder:
        raise BadRequest("the holder of a lease has no name")
    return await files.appending.extend(asked.path, asked.user, asked.holder, host)


async def _switch_snapshots(files: Files, asked: m.SwitchSnapshots, _host: str | None) -> None:
    switch = files.snapshots.allow if asked.allowed else files.snapshots.disallow
    await switch(asked.path, asked.user, asked.request_id)


async def _trash_minutes(files: Files, _asked: m.GetServerSettings, _host: str | None) -> int:
    return files.trash.kept_minutes


def _status_form(name: str) -> Form:
    return Form("GET", name, lambda status, _: json_answer({"FileStatus": status_json(status)}))


# -- the table ---------------------------------------------------------------------------------------

_ROWS: Final = (
    Row(
        m.GetFileInfo,
        lambda files, asked, _: files.names.status(asked.path, asked.user),
        frame_replies.file_info,
        (_status_form("GETFILESTATUS"), _status_form("GETFILELINKSTATUS")),
    ),
    Row(
        m.GetListing,
        lambda files, asked, _: files.names.list_page(
            asked.path, asked.user, asked.start_after or None, list_page_entries
        ),
        frame_replies.listing,
        (
            Form(
                "GET",
                "LISTSTATUS_BATCH",
                lambda page, _: json_answer(page_json(page)),
                lambda query: {"start_after": query.text("startafter") or ""},
            ),
        ),
    ),
    Row(
        m.GetTreeSums,
        lambda files, asked, _: files.names.content_summary(asked.path, asked.user),
        frame_replies.tree_sums,
        (Form("GET", "GETCONTENTSUMMARY", lambda counted, _: json_answer(content_summary_json(counted))),),
    ),
    Row(
        m.GetQuotaSums,
        lambda files, asked, _: files.limiting.usage(asked.path, asked.user),
        frame_replies.quota_sums,
        (Form("GET", "GETQUOTAUSAGE", lambda quota, _: json_answer(quota_usage_json(quota))),),
    ),
    Row(
        m.GetXAttrs,
        lambda files, asked, _: files.attributes.values(asked.path, asked.user),
        m.XAttrs,
        (Form("GET", "LISTXATTRS", _attribute_names),),
    ),
    Row(
        m.GetAclEntries,
        lambda files, asked, _: files.names.status(asked.path, asked.user),
        frame_replies.acl_entries,
        (Form("GET", "GETACLSTATUS", lambda status, _: json_answer(acl_json(status))),),
    ),
    Row(
        m.GetServerSettings,
        _trash_minutes,
        m.ServerSettings,
        (Form("GET", "GETSERVERDEFAULTS", lambda minutes, _: json_answer(server_defaults_json(minutes))),),
    ),
    Row(
        m.Mkdirs,
        _mkdirs,
        frame_replies.changed,
        (Form("PUT", "MKDIRS", _boolean, fields.directory),),
    ),
    Row(
        m.RenamePath,
        _rename,
        frame_replies.changed,
        (Form("PUT", "RENAME", _renamed, fields.how_to_rename),),
        destination=lambda asked: asked.target,
    ),
    Row(
        m.ExchangePaths,
        _exchange,
        frame_replies.changed,
        destination=lambda asked: ",".join(other for _, other in asked.pairs),
    ),
    Row(
        m.DeletePath,
        lambda files, asked, _: files.names.delete(asked.path, asked.recursive, asked.user, asked.request_id),
        frame_replies.changed,
        (Form("DELETE", "DELETE", _boolean, lambda query: {"recursive": query.boolean("recursive", False)}),),
    ),
    Row(
        m.CopyPath,
        lambda files, asked, _: files.copying.copy(
            asked.path, asked.target, asked.user, preserve=asked.preserve, request_id=asked.request_id
        ),
        frame_replies.tree_sums,
        destination=lambda asked: asked.target,
    ),
    Row(
        m.ChangePermission,
        _change_permission,
        frame_replies.changed,
        (
            Form(
                "PUT",
                "SETPERMISSION",
                _empty,
                lambda query: {"permission": query.permission("permission", fields.DIRECTORY_PERMISSION)},
            ),
        ),
    ),
    Row(
        m.ChangeOwner,
        _change_owner,
        frame_replies.changed,
        (Form("PUT", "SETOWNER", _empty, fields.owners),),
    ),
    Row(
        m.ChangeReplication,
        _change_replication,
        frame_replies.changed,
        (
            Form(
                "PUT",
                "SETREPLICATION",
                _boolean,
                lambda query: {"replication": query.integer("replication", replication_default, 1)},
            ),
        ),
    ),
    Row(m.ChangeTimes, _change_times, frame_replies.changed, (Form("PUT", "SETTIMES", _empty, fields.times),)),
    Row(
        m.ChangeQuota,
        lambda files, asked, _: files.limiting.set_quota(
            asked.path, asked.user, asked.names, asked.space, asked.request_id
        ),
        frame_replies.changed,
        (Form("PUT", "SETQUOTA", _empty, fields.quotas),),
    ),
    Row(m.SetXAttr, _set_xattr, frame_replies.changed, (Form("PUT", "SETXATTR", _empty, fields.attribute),)),
    Row(
        m.RemoveXAttr,
        lambda files, asked, _: files.attributes.remove(asked.path, asked.user, asked.name, asked.request_id),
        frame_replies.changed,
        (Form("PUT", "REMOVEXATTR", _empty, lambda query: {"name": query.required("xattr.name")}),),
    ),
    Row(
        m.ChangeAcl,
        lambda files, asked, _: files.acls.change(
            asked.path, asked.user, asked.operation, asked.spec, asked.request_id
        ),
        frame_replies.changed,
        (
            _acl_form("MODIFYACLENTRIES", needs_entries=True),
            _acl_form("REMOVEACLENTRIES", needs_entries=True),
            _acl_form("SETACL"),
            _acl_form("REMOVEDEFAULTACL"),
            _acl_form("REMOVEACL"),
        ),
    ),
    Row(
        m.TruncatePath,
        lambda files, asked, _: files.reshaping.truncate(asked.path, asked.length, asked.user, asked.request_id),
        frame_replies.changed,
        (Form("POST", "TRUNCATE", _boolean, fields.length),),
    ),
    Row(
        m.ConcatFiles,
        _concat,
        frame_replies.changed,
        (Form("POST", "CONCAT", _empty, lambda query: {"sources": list(query.sequence("sources"))}),),
        destination=lambda asked: ",".join(asked.sources),
    ),
    Row(m.OpenForAppend, _append, lambda leased: leased),
    Row(
        m.RecoverLease,
        lambda files, asked, _: files.appending.recover_lease(asked.path, asked.user),
        frame_replies.changed,
    ),
    Row(
        m.SwitchSnapshots,
        _switch_snapshots,
        frame_replies.changed,
        (
            Form("PUT", "ALLOWSNAPSHOT", _empty, lambda _: {"allowed": True}),
            Form("PUT", "DISALLOWSNAPSHOT", _empty, lambda _: {"allowed": False}),
        ),
    ),
    Row(
        m.TakeSnapshot,
        lambda files, asked, _: files.snapshots.create(
            asked.path, asked.user, asked.name or None, asked.request_id
        ),
        m.SnapshotTaken,
        (
            Form(
                "PUT",
                "CREATESNAPSHOT",
                lambda path, _: json_answer({"Path": path}),
                lambda query: {"name": query.text("snapshotname") or ""},
            ),
        ),
        destination=lambda asked: asked.name or None,
    ),
    Row(
        m.RenameTakenSnapshot,
        lambda files, asked, _: files.snapshots.rename(
            asked.path, asked.user, asked.name, asked.new_name, asked.request_id
        ),
        frame_replies.changed,
        (
            Form(
                "PUT",
                "RENAMESNAPSHOT",
                _empty,
                lambda query: {
                    "name": query.required("oldsnapshotname"),
                    "new_name": query.required("snapshotname"),
                },
            ),
        ),
        destination=lambda asked: asked.new_name,
    ),
    Row(
        m.DropSnapshot,
        lambda files, asked, _: files.snapshots.delete(asked.path, asked.user, asked.name, asked.request_id),
        frame_replies.changed,
        (Form("DELETE", "DELETESNAPSHOT", _empty, lambda query: {"name": query.required("snapshotname")}),),
        destination=lambda asked: asked.name or None,
    ),
    Row(
        m.ReturnToSnapshot,
        lambda files, asked, _: files.snapshots.restore(asked.path, asked.user, asked.name, asked.request_id),
        frame_replies.changed,
        destination=lambda asked: asked.name or None,
    ),
)
#: Every operation on names, by its message.
NAME_TABLE: Final[Mapping[type[m.Message], Row]] = {row.message: row for row in _ROWS}
