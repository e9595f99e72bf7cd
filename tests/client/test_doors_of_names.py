"""Every row of the table of names, over frames and over HTTP, does what a model of HDFS's documentation does."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from oracles.name_states import NameTree, Path, Refused

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.coordinator.calls.name_table import NAME_TABLE
from peacefs.protocol import messages as m
from peacefs.protocol.errors import PeacefsError, remote_exception

from .name_steps import ALONE, ALONE_FORMS, ME, READ_FORMS, READS, STEPS, Http, Step, filled

pytestmark = pytest.mark.cluster

Shown = dict[Path, tuple[Any, ...]]


class Frames:
    """Operations over frames, as our client sends them."""

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
    """Operations over WebHDFS, or over REST if WebHDFS does not have them."""

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
    """Return all metadata below a directory that an interface shows."""
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
