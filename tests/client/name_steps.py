"""At least one step for each row of the table of names: as a message, over HTTP, and as a change of the model."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from oracles.name_states import NameTree

from peacefs.protocol import messages as m

ME = getpass.getuser()


class Http(NamedTuple):
    """A request over HTTP. {} is replaced by the test's directory."""

    method: str
    path: str
    operation: str = ""
    body: dict[str, Any] | None = None


class Step(NamedTuple):
    """One operation: its message, the same request over HTTP, and the same change of the model."""

    message: Callable[[str], m.NameCall]
    http: tuple[Http, ...]
    play: Callable[[NameTree], object]


def changed(kind: type[m.NameChange], path: str, **fields: Any) -> Callable[[str], m.NameCall]:
    def message(top: str) -> m.NameCall:
        shown = {name: filled(value, top) for name, value in fields.items()}
        return kind(f"{top}/{path}".rstrip("/"), ME, request_id=os.urandom(8).hex(), **shown)

    return message


def filled(value: Any, top: str) -> Any:
    if isinstance(value, str):
        return value.replace("{}", top)
    if isinstance(value, list):
        return [filled(each, top) for each in value]
    if isinstance(value, tuple):
        return tuple(filled(each, top) for each in value)
    if isinstance(value, dict):
        return {name: filled(each, top) for name, each in value.items()}
    return value


def hdfs(method: str, path: str, operation: str) -> tuple[Http, ...]:
    return (Http(method, f"/webhdfs/v1{{}}/{path}".rstrip("/"), operation),)


def rest(route: str, /, **body: Any) -> tuple[Http, ...]:
    return (Http("POST", route, body=body),)


STEPS = [
    Step(
        changed(m.Mkdirs, "d/deep", permission=0o700),
        hdfs("PUT", "d/deep", "MKDIRS&permission=700"),
        lambda tree: tree.mkdirs(("d", "deep"), 0o700),
    ),
    Step(
        changed(m.Mkdirs, "file", permission=0o755),
        hdfs("PUT", "file", "MKDIRS"),
        lambda tree: tree.mkdirs(("file",), 0o755),
    ),
    Step(
        changed(m.Mkdirs, "file/x", permission=0o755),
        hdfs("PUT", "file/x", "MKDIRS"),
        lambda tree: tree.mkdirs(("file", "x"), 0o755),
    ),
    Step(
        changed(m.ChangeQuota, "d", names=3, space=None),
        hdfs("PUT", "d", "SETQUOTA&namespacequota=3"),
        lambda tree: tree.set(("d",), names_quota=3),
    ),
    Step(
        changed(m.Mkdirs, "d/deep/more/still", permission=0o755),
        hdfs("PUT", "d/deep/more/still", "MKDIRS"),
        lambda tree: tree.mkdirs(("d", "deep", "more", "still"), 0o755),
    ),
    Step(
        changed(m.RenamePath, "file", target="{}/moved", overwrite=False),
        hdfs("PUT", "file", "RENAME&renameoptions=NONE&destination={}/moved"),
        lambda tree: tree.rename(("file",), ("moved",), overwrite=False),
    ),
    Step(
        changed(m.RenamePath, "moved", target="{}/other", overwrite=False),
        hdfs("PUT", "moved", "RENAME&renameoptions=NONE&destination={}/other"),
        lambda tree: tree.rename(("moved",), ("other",), overwrite=False),
    ),
    Step(
        changed(m.RenamePath, "moved", target="{}/other", overwrite=True),
        hdfs("PUT", "moved", "RENAME&renameoptions=OVERWRITE&destination={}/other"),
        lambda tree: tree.rename(("moved",), ("other",), overwrite=True),
    ),
    Step(
        changed(m.RenamePath, "other", target="{}/d/deep", overwrite=False, is_legacy=True),
        hdfs("PUT", "other", "RENAME&destination={}/d/deep"),
        lambda tree: tree.rename(("other",), ("d", "deep", "other"), overwrite=False) or True,
    ),
    Step(
        changed(m.ExchangePaths, "left", pairs=[("{}/left", "{}/right")]),
        rest("/v1/exchanges", pairs=[["{}/left", "{}/right"]], user=ME),
        lambda tree: tree.exchange(("left",), ("right",)),
    ),
    Step(
        changed(m.CopyPath, "left", target="{}/copied", preserve=False),
        rest("/v1/copies", source="{}/left", target="{}/copied", user=ME),
        lambda tree: tree.copy(("left",), ("copied",)),
    ),
    Step(
        changed(m.ChangePermission, "left", permission=0o1751),
        hdfs("PUT", "left", "SETPERMISSION&permission=1751"),
        lambda tree: tree.set(("left",), permission=0o1751),
    ),
    Step(
        changed(m.ChangePermission, "none", permission=0o700),
        hdfs("PUT", "none", "SETPERMISSION&permission=700"),
        lambda tree: tree.set(("none",), permission=0o700),
    ),
    Step(
        changed(m.ChangeOwner, "left", owner="ann", group="staff"),
        hdfs("PUT", "left", "SETOWNER&owner=ann&group=staff"),
        lambda tree: tree.set(("left",), owner="ann", group="staff"),
    ),
    Step(
        changed(m.ChangeReplication, "left", replication=2),
        hdfs("PUT", "left", "SETREPLICATION&replication=2"),
        lambda tree: tree.set_replication(("left",), 2),
    ),
    Step(
        changed(m.ChangeReplication, "d", replication=2),
        hdfs("PUT", "d", "SETREPLICATION&replication=2"),
        lambda tree: tree.set_replication(("d",), 2),
    ),
    Step(
        changed(m.ChangeTimes, "left", modified_ms=5000, accessed_ms=6000),
        hdfs("PUT", "left", "SETTIMES&modificationtime=5000&accesstime=6000"),
        lambda tree: tree.set(("left",), times=(5000, 6000)),
    ),
    Step(
        changed(m.SetXAttr, "right", name="user.colour", value=b"red", flags=["REPLACE"]),
        hdfs("PUT", "right", "SETXATTR&xattr.name=user.colour&xattr.value=0x726564&flag=REPLACE"),
        lambda tree: tree.set_attribute(("right",), "user.colour", b"red", {"REPLACE"}),
    ),
    Step(
        changed(m.SetXAttr, "right", name="user.colour", value=b"red", flags=["CREATE"]),
        hdfs("PUT", "right", "SETXATTR&xattr.name=user.colour&xattr.value=0x726564&flag=CREATE"),
        lambda tree: tree.set_attribute(("right",), "user.colour", b"red", {"CREATE"}),
    ),
    Step(
        changed(m.SetXAttr, "right", name="user.size", value=b"9", flags=["CREATE", "REPLACE"]),
        hdfs("PUT", "right", 'SETXATTR&xattr.name=user.size&xattr.value="9"&flag=CREATE,REPLACE'),
        lambda tree: tree.set_attribute(("right",), "user.size", b"9", {"CREATE", "REPLACE"}),
    ),
    Step(
        changed(m.RemoveXAttr, "right", name="user.size"),
        hdfs("PUT", "right", "REMOVEXATTR&xattr.name=user.size"),
        lambda tree: tree.remove_attribute(("right",), "user.size"),
    ),
    Step(
        changed(m.RemoveXAttr, "right", name="user.size"),
        hdfs("PUT", "right", "REMOVEXATTR&xattr.name=user.size"),
        lambda tree: tree.remove_attribute(("right",), "user.size"),
    ),
    Step(
        changed(m.ChangeAcl, "copied", operation="SETACL", spec="user::rw-,user:bob:rwx,group::r--,other::---"),
        hdfs("PUT", "copied", "SETACL&aclspec=user::rw-,user:bob:rwx,group::r--,other::---"),
        lambda tree: tree.set(("copied",), acl={"bob": 7}, permission=0o640),
    ),
    Step(
        changed(m.ChangeAcl, "copied", operation="MODIFYACLENTRIES", spec="user:eve:-w-"),
        hdfs("PUT", "copied", "MODIFYACLENTRIES&aclspec=user:eve:-w-"),
        lambda tree: tree.find(("copied",)).acl.update(eve=2),
    ),
    Step(
        changed(m.ChangeAcl, "copied", operation="REMOVEACLENTRIES", spec="user:bob:"),
        hdfs("PUT", "copied", "REMOVEACLENTRIES&aclspec=user:bob:"),
        lambda tree: tree.find(("copied",)).acl.pop("bob") and None,
    ),
    Step(
        changed(m.ChangeAcl, "copied", operation="REMOVEDEFAULTACL"),
        hdfs("PUT", "copied", "REMOVEDEFAULTACL"),
        lambda tree: None,
    ),
    Step(
        changed(m.ChangeAcl, "right", operation="REMOVEACL"),
        hdfs("PUT", "right", "REMOVEACL"),
        lambda tree: None,
    ),
    Step(
        changed(m.TruncatePath, "right", length=2),
        hdfs("POST", "right", "TRUNCATE&newlength=2"),
        lambda tree: tree.truncate(("right",), 2),
    ),
    Step(
        changed(m.TruncatePath, "right", length=20),
        hdfs("POST", "right", "TRUNCATE&newlength=20"),
        lambda tree: tree.truncate(("right",), 20),
    ),
    Step(
        changed(m.ConcatFiles, "right", sources=["{}/right"]),
        hdfs("POST", "right", "CONCAT&sources={}/right"),
        lambda tree: tree.concat(("right",), [("right",)]),
    ),
    Step(
        changed(m.ConcatFiles, "right", sources=["{}/left"]),
        hdfs("POST", "right", "CONCAT&sources={}/left"),
        lambda tree: tree.concat(("right",), [("left",)]),
    ),
    Step(
        lambda top: m.RecoverLease(f"{top}/right", ME),
        rest("/v1/files/recover-lease", path="{}/right", user=ME),
        lambda tree: True,
    ),
    Step(
        changed(m.TakeSnapshot, "s", name="one"),
        hdfs("PUT", "s", "CREATESNAPSHOT&snapshotname=one"),
        lambda tree: tree.take_snapshot(("s",), "one"),
    ),
    Step(
        changed(m.SwitchSnapshots, "s", allowed=True),
        hdfs("PUT", "s", "ALLOWSNAPSHOT"),
        lambda tree: tree.switch_snapshots(("s",), True),
    ),
    Step(
        changed(m.TakeSnapshot, "s", name="one"),
        hdfs("PUT", "s", "CREATESNAPSHOT&snapshotname=one"),
        lambda tree: tree.take_snapshot(("s",), "one"),
    ),
    Step(
        changed(m.SwitchSnapshots, "s", allowed=False),
        hdfs("PUT", "s", "DISALLOWSNAPSHOT"),
        lambda tree: tree.switch_snapshots(("s",), False),
    ),
    Step(
        changed(m.DeletePath, "s/tree", recursive=False),
        hdfs("DELETE", "s/tree", "DELETE"),
        lambda tree: tree.delete(("s", "tree"), recursive=False),
    ),
    Step(
        changed(m.DeletePath, "s/tree", recursive=True),
        hdfs("DELETE", "s/tree", "DELETE&recursive=true"),
        lambda tree: tree.delete(("s", "tree"), recursive=True),
    ),
    Step(
        changed(m.DeletePath, "s/tree", recursive=True),
        hdfs("DELETE", "s/tree", "DELETE&recursive=true"),
        lambda tree: tree.delete(("s", "tree"), recursive=True),
    ),
    Step(
        changed(m.RenameTakenSnapshot, "s", name="one", new_name="two"),
        hdfs("PUT", "s", "RENAMESNAPSHOT&oldsnapshotname=one&snapshotname=two"),
        lambda tree: tree.rename_snapshot(("s",), "one", "two"),
    ),
    Step(
        changed(m.ReturnToSnapshot, "s", name="two"),
        rest("/v1/snapshots/restore", path="{}/s", user=ME, snapshot="two"),
        lambda tree: tree.return_to_snapshot(("s",), "two"),
    ),
    Step(
        changed(m.DropSnapshot, "s", name="one"),
        hdfs("DELETE", "s", "DELETESNAPSHOT&snapshotname=one"),
        lambda tree: tree.drop_snapshot(("s",), "one"),
    ),
    Step(
        changed(m.DropSnapshot, "s", name="two"),
        hdfs("DELETE", "s", "DELETESNAPSHOT&snapshotname=two"),
        lambda tree: tree.drop_snapshot(("s",), "two"),
    ),
]
#: Read by `seen`, after each step.
READS = {m.GetFileInfo, m.GetListing, m.GetTreeSums, m.GetQuotaSums, m.GetXAttrs, m.GetAclEntries}
READ_FORMS = {
    "GETFILESTATUS",
    "LISTSTATUS_BATCH",
    "GETCONTENTSUMMARY",
    "GETQUOTAUSAGE",
    "LISTXATTRS",
    "GETACLSTATUS",
}
#: These have tests of their own.
ALONE = {m.GetServerSettings, m.OpenForAppend}
ALONE_FORMS = {"GETSERVERDEFAULTS", "GETFILELINKSTATUS"}
