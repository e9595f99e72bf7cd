"""Every row of the table of names through every door, each against the same model of what HDFS documents."""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import pytest
from oracles.name_states import NameTree, Path, Refused

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.coordinator.calls.name_table import NAME_TABLE
from peacefs.protocol import messages as m
from peacefs.protocol.errors import PeacefsError, remote_exception

pytestmark = pytest.mark.cluster

ME = getpass.getuser()


class Http(NamedTuple):
    """A request over HTTP; {} stands for the directory of the test."""

    method: str
    path: str
    operation: str = ""
    body: dict[str, Any] | None = None


class Step(NamedTuple):
    """One operation: the message, the same over HTTP, and what the model does; None where a door has no form."""

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
#: Driven by `Frames.seen` and `OverHttp.seen`, after each step.
READS = {m.GetFileInfo, m.GetListing, m.GetTreeSums, m.GetQuotaSums, m.GetXAttrs, m.GetAclEntries}
READ_FORMS = {
    "GETFILESTATUS",
    "LISTSTATUS_BATCH",
    "GETCONTENTSUMMARY",
    "GETQUOTAUSAGE",
    "LISTXATTRS",
    "GETACLSTATUS",
}
#: Asked for on their own below.
ALONE = {m.GetServerSettings, m.OpenForAppend}
ALONE_FORMS = {"GETSERVERDEFAULTS", "GETFILELINKSTATUS"}

Shown = dict[Path, tuple[Any, ...]]


class Frames:
    """The door for our client."""

    def __init__(self, files: PeaceFileSystem) -> None:
        self._files = files

    def make(self, step: Step, top: str) -> object:
        reply = self._files.ask(step.message(top), m.Message)
        if isinstance(reply, m.TreeSums):
            return reply.directories, reply.files, reply.length
        return reply.done if isinstance(reply, m.NameChanged) else True

    def status(self, path: str) -> tuple[Any, ...]:
        one = self._files.ask(m.GetFileInfo(path, ME), m.FileInfo).status
        xattrs = self._files.ask(m.GetXAttrs(path, ME), m.XAttrs).values
        acl = self._files.ask(m.GetAclEntries(path, ME), m.AclEntries).entries
        times = (one.modified_ms, one.accessed_ms)
        return (
            one.is_directory,
            one.length,
            one.owner,
            one.group,
            one.permission,
            one.replication,
            times,
            sorted(xattrs),
            acl,
        )

    def children(self, path: str) -> list[str]:
        return [row.name for row in self._files.ask(m.GetListing(path, ME), m.Listing).entries]

    def sums(self, path: str) -> tuple[int, int, int, int]:
        found = self._files.ask(m.GetTreeSums(path, ME), m.TreeSums)
        quota = self._files.ask(m.GetQuotaSums(path, ME), m.QuotaSums)
        assert quota.names == found.directories + found.files
        return found.directories, found.files, found.length, quota.names_quota


class OverHttp:
    """WebHDFS, and REST where WebHDFS has no such operation."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def ask(self, asked: Http, top: str) -> Any:
        query = (
            f"?user.name={ME}&op={quote(filled(asked.operation, top), safe='&=/,:')}" if asked.operation else ""
        )
        answer = self._http.request(asked.method, filled(asked.path, top) + query, json=filled(asked.body, top))
        if answer.status_code >= 400:
            raise Refused(answer.json()["RemoteException"]["exception"])
        return answer.json() if answer.content else None

    def make(self, step: Step, top: str) -> object:
        told: Any = None
        for asked in step.http:
            told = self.ask(asked, top)
        if told and "directories" in told:
            return told["directories"], told["files"], told["length"]
        return told["boolean"] if told and "boolean" in told else True

    def _get(self, path: str, operation: str) -> Any:
        return self.ask(Http("GET", f"/webhdfs/v1{path}", operation), "")

    def status(self, path: str) -> tuple[Any, ...]:
        one = self._get(path, "GETFILESTATUS")["FileStatus"]
        names = self._get(path, "LISTXATTRS")["XAttrNames"]
        acl = ",".join(self._get(path, "GETACLSTATUS")["AclStatus"]["entries"])
        times = (one["modificationTime"], one["accessTime"])
        is_directory = one["type"] == "DIRECTORY"
        return (
            *(is_directory, one["length"], one["owner"], one["group"], int(one["permission"], 8)),
            *(one["replication"], times, sorted(json.loads(names)), acl),
        )

    def children(self, path: str) -> list[str]:
        page = self._get(path, "LISTSTATUS_BATCH")["DirectoryListing"]["partialListing"]
        return [row["pathSuffix"] for row in page["FileStatuses"]["FileStatus"]]

    def sums(self, path: str) -> tuple[int, int, int, int]:
        found = self._get(path, "GETCONTENTSUMMARY")["ContentSummary"]
        quota = self._get(path, "GETQUOTAUSAGE")["QuotaUsage"]
        assert quota["fileAndDirectoryCount"] == found["directoryCount"] + found["fileCount"]
        return found["directoryCount"], found["fileCount"], found["length"], quota["quota"]


Door = Frames | OverHttp


def bits_of(symbols: str) -> int:
    return sum(bit for bit, symbol in zip((4, 2, 1), symbols, strict=True) if symbol != "-")


def seen(door: Door, top: str) -> Shown:
    """All that the door shows below a directory."""
    shown: Shown = {}
    paths: list[Path] = [()]
    while paths:
        path = paths.pop()
        where = "/".join((top, *path))
        is_directory, length, owner, group, permission, replication, times, names, acl = door.status(where)
        entries = [entry.split(":") for entry in acl.split(",") if entry]
        users = {name: bits_of(symbols) for kind, name, symbols in entries if kind == "user" and name}
        row = (length, owner, group, permission, replication, times if max(times) < 10_000 else None, names, users)
        if is_directory:
            children = door.children(where)
            paths += [(*path, name) for name in children]
            row = (*row, children, door.sums(where))
        if path:
            shown[path] = row
    return shown


def expected(tree: NameTree) -> Shown:
    shown: Shown = {}
    for path, entry in tree.entries.items():
        length = 0 if entry.data is None else len(entry.data)
        row: tuple[Any, ...] = (
            length,
            entry.owner,
            entry.group,
            entry.shown_permission,
            entry.replication,
            entry.times,
        )
        row = (*row, sorted(entry.attributes), entry.acl)
        if entry.data is None:
            quota = -1 if entry.names_quota is None else entry.names_quota
            row = (*row, tree.children(path), (*tree.summary(path), quota))
        if path:
            shown[path] = row
    return shown


@pytest.fixture
def http(shared_cluster: LocalCluster) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shared_cluster.http_address) as client:
        yield client


@pytest.fixture
def prepared(superuser: PeaceFileSystem) -> Iterator[Callable[[], tuple[str, NameTree]]]:
    """Make a directory with some files, and its model."""
    made: list[str] = []

    def prepare() -> tuple[str, NameTree]:
        top = f"/doors-{os.urandom(4).hex()}"
        made.append(top)
        superuser.mkdirs(top)
        tree = NameTree(ME, superuser.status(top).group)
        for directory in (("s",), ("s", "tree")):
            superuser.mkdirs("/".join((top, *directory)))
            tree.mkdirs(directory, 0o755)
        for path in (("file",), ("other",), ("left",), ("right",), ("s", "kept"), ("s", "tree", "leaf")):
            data = "-".join(path).encode()
            superuser.write("/".join((top, *path)), data, replication=1)
            tree.write(path, data, 1)
        return top, tree

    yield prepare
    for top in made:
        superuser.delete(top, recursive=True)


def test_every_row_is_driven_through_every_door_that_has_a_form_of_it() -> None:
    driven = {type(step.message("/top")) for step in STEPS}
    assert driven | READS | ALONE == set(NAME_TABLE)
    forms = {form.name for row in NAME_TABLE.values() for form in row.forms}
    asked = {each.operation.partition("&")[0] for step in STEPS for each in step.http if each.operation}
    assert asked | READ_FORMS | ALONE_FORMS == forms


def played(play: Callable[[NameTree], object], tree: NameTree) -> tuple[object, str]:
    try:
        result = play(tree)
    except Refused as refusal:
        return None, str(refusal)
    return result if isinstance(result, bool | tuple) else True, ""


@pytest.mark.parametrize("kind", ["frames", "http"])
def test_each_door_does_what_the_model_does(
    kind: str,
    superuser: PeaceFileSystem,
    http: httpx.Client,
    prepared: Callable[[], tuple[str, NameTree]],
) -> None:
    door: Door = Frames(superuser) if kind == "frames" else OverHttp(http)
    top, tree = prepared()
    assert seen(door, top) == expected(tree)
    for step in STEPS:
        wanted = played(step.play, tree)
        result: object = None
        refusal = ""
        try:
            result = door.make(step, top)
        except Refused as refused:
            refusal = str(refused)
        except PeacefsError as error:
            refusal = remote_exception(error, "")["RemoteException"]["exception"]
        assert (result, refusal) == wanted, step.message(top)
        assert seen(door, top) == expected(tree), step.message(top)


def test_settings_and_the_status_without_links_are_the_same_at_both_doors(
    superuser: PeaceFileSystem, http: httpx.Client, prepared: Callable[[], tuple[str, NameTree]]
) -> None:
    top, tree = prepared()
    door = OverHttp(http)
    settings = superuser.ask(m.GetServerSettings("/", ME), m.ServerSettings)
    defaults = door.ask(Http("GET", "/webhdfs/v1/", "GETSERVERDEFAULTS"), "")
    assert defaults["FsServerDefaults"]["trashInterval"] == settings.trash_minutes == 0
    told = door.ask(Http("GET", f"/webhdfs/v1{top}/file", "GETFILELINKSTATUS"), "")["FileStatus"]
    assert told["length"] == len(tree.find(("file",)).data or b"")
    leased = superuser.ask(m.OpenForAppend(f"{top}/file", ME, "holder"), m.Leased)
    assert leased.length == told["length"]
