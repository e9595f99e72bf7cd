"""Names over frames and over WebHDFS: equal outcomes and messages, for good and bad calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.coordinator.limits import list_page_entries
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.values.acl_entries import acl_text, parse_acl

pytestmark = pytest.mark.cluster

Ours = Callable[[PeaceFileSystem, str], object]
#: An HTTP method, a path below the test's directory, and an operation with its parameters.
Theirs = tuple[str, str, str]

CALLS: list[tuple[str, Ours, Theirs]] = [
    ("mkdirs", lambda fs, d: fs.mkdirs(f"{d}/new/deep", 0o700), ("PUT", "/new/deep", "MKDIRS&permission=700")),
    ("mkdirs over a file", lambda fs, d: fs.mkdirs(f"{d}/file"), ("PUT", "/file", "MKDIRS")),
    ("mkdirs below a file", lambda fs, d: fs.mkdirs(f"{d}/file/x"), ("PUT", "/file/x", "MKDIRS")),
    ("mkdirs elsewhere", lambda fs, d: fs.mkdirs(f"{d}/closed/x"), ("PUT", "/closed/x", "MKDIRS")),
    ("status", lambda fs, d: fs.status(f"{d}/file"), ("GET", "/file", "GETFILESTATUS")),
    ("status of nothing", lambda fs, d: fs.status(f"{d}/none"), ("GET", "/none", "GETFILESTATUS")),
    ("status elsewhere", lambda fs, d: fs.status(f"{d}/closed/x"), ("GET", "/closed/x", "GETFILESTATUS")),
    ("list of nothing", lambda fs, d: fs.list(f"{d}/none"), ("GET", "/none", "LISTSTATUS_BATCH")),
    ("list elsewhere", lambda fs, d: fs.list(f"{d}/closed"), ("GET", "/closed", "LISTSTATUS_BATCH")),
    (
        "rename",
        lambda fs, d: fs.rename(f"{d}/file", f"{d}/moved"),
        ("PUT", "/file", "RENAME&renameoptions=NONE&destination={}/moved"),
    ),
    (
        "rename over one",
        lambda fs, d: fs.rename(f"{d}/file", f"{d}/other"),
        ("PUT", "/file", "RENAME&renameoptions=NONE&destination={}/other"),
    ),
    (
        "rename that replaces",
        lambda fs, d: fs.rename(f"{d}/file", f"{d}/other", overwrite=True),
        ("PUT", "/file", "RENAME&renameoptions=OVERWRITE&destination={}/other"),
    ),
    (
        "rename of nothing",
        lambda fs, d: fs.rename(f"{d}/none", f"{d}/moved"),
        ("PUT", "/none", "RENAME&renameoptions=NONE&destination={}/moved"),
    ),
    ("delete", lambda fs, d: fs.delete(f"{d}/file"), ("DELETE", "/file", "DELETE")),
    ("delete of nothing", lambda fs, d: fs.delete(f"{d}/none"), ("DELETE", "/none", "DELETE")),
    ("delete of a tree", lambda fs, d: fs.delete(f"{d}/tree"), ("DELETE", "/tree", "DELETE")),
    (
        "delete of all of a tree",
        lambda fs, d: fs.delete(f"{d}/tree", recursive=True),
        ("DELETE", "/tree", "DELETE&recursive=true"),
    ),
    ("delete elsewhere", lambda fs, d: fs.delete(f"{d}/closed"), ("DELETE", "/closed", "DELETE")),
    (
        "permission",
        lambda fs, d: fs.set_permission(f"{d}/file", 0o1751),
        ("PUT", "/file", "SETPERMISSION&permission=1751"),
    ),
    (
        "permission that there is not",
        lambda fs, d: fs.set_permission(f"{d}/file", 0o7777),
        ("PUT", "/file", "SETPERMISSION&permission=7777"),
    ),
    (
        "owner, by one who may not",
        lambda fs, d: fs.set_owner(f"{d}/file", "bob", None),
        ("PUT", "/file", "SETOWNER&owner=bob"),
    ),
    (
        "owner of no name",
        lambda fs, d: fs.set_owner(f"{d}/file", "", ""),
        ("PUT", "/file", "SETOWNER&owner=&group="),
    ),
    (
        "owner with a colon",
        lambda fs, d: fs.set_owner(f"{d}/file", "a:b", None),
        ("PUT", "/file", "SETOWNER&owner=a:b"),
    ),
    (
        "times",
        lambda fs, d: fs.set_times(f"{d}/file", modified_ms=5, accessed_ms=6),
        ("PUT", "/file", "SETTIMES&modificationtime=5&accesstime=6"),
    ),
    (
        "replication",
        lambda fs, d: fs.set_replication(f"{d}/file", 2),
        ("PUT", "/file", "SETREPLICATION&replication=2"),
    ),
    (
        "replication of a directory",
        lambda fs, d: fs.set_replication(f"{d}/tree", 2),
        ("PUT", "/tree", "SETREPLICATION&replication=2"),
    ),
    (
        "replication by none",
        lambda fs, d: fs.set_replication(f"{d}/file", 0),
        ("PUT", "/file", "SETREPLICATION&replication=0"),
    ),
    ("summary", lambda fs, d: fs.content_summary(f"{d}/tree"), ("GET", "/tree", "GETCONTENTSUMMARY")),
    ("summary of nothing", lambda fs, d: fs.content_summary(f"{d}/none"), ("GET", "/none", "GETCONTENTSUMMARY")),
    ("quota", lambda fs, d: fs.quotas.usage(f"{d}/tree"), ("GET", "/tree", "GETQUOTAUSAGE")),
    (
        "quota, by one who may not",
        lambda fs, d: fs.quotas.set(f"{d}/tree", names=5),
        ("PUT", "/tree", "SETQUOTA&namespacequota=5"),
    ),
    (
        "attribute",
        lambda fs, d: fs.xattrs.set(f"{d}/file", "user.colour", b"red"),
        ("PUT", "/file", "SETXATTR&xattr.name=user.colour&xattr.value=0x726564&flag=CREATE,REPLACE"),
    ),
    (
        "attribute that is not there",
        lambda fs, d: fs.xattrs.set(f"{d}/file", "user.colour", b"red", ["REPLACE"]),
        ("PUT", "/file", "SETXATTR&xattr.name=user.colour&xattr.value=0x726564&flag=REPLACE"),
    ),
    (
        "attribute that is removed",
        lambda fs, d: fs.xattrs.remove(f"{d}/file", "user.none"),
        ("PUT", "/file", "REMOVEXATTR&xattr.name=user.none"),
    ),
    ("acl", lambda fs, d: fs.acls.get(f"{d}/file"), ("GET", "/file", "GETACLSTATUS")),
    ("acl of nothing", lambda fs, d: fs.acls.get(f"{d}/none"), ("GET", "/none", "GETACLSTATUS")),
    ("acl elsewhere", lambda fs, d: fs.acls.get(f"{d}/closed/x"), ("GET", "/closed/x", "GETACLSTATUS")),
    (
        "acl entries that are added",
        lambda fs, d: fs.acls.modify(f"{d}/tree", parse_acl("user:bob:rwx,default:group:staff:r-x")),
        ("PUT", "/tree", "MODIFYACLENTRIES&aclspec=user:bob:rwx,default:group:staff:r-x"),
    ),
    (
        "acl entries of none",
        lambda fs, d: fs.acls.modify(f"{d}/file", []),
        ("PUT", "/file", "MODIFYACLENTRIES"),
    ),
    (
        "acl entry that is removed",
        lambda fs, d: fs.acls.remove_entries(f"{d}/shared", parse_acl("user:bob:---")),
        ("PUT", "/shared", "REMOVEACLENTRIES&aclspec=user:bob:"),
    ),
    (
        "acl that is replaced",
        lambda fs, d: fs.acls.set(f"{d}/shared", parse_acl("user::rwx,user:ann:r--,group::---,other::---")),
        ("PUT", "/shared", "SETACL&aclspec=user::rwx,user:ann:r--,group::---,other::---"),
    ),
    (
        "acl without the owner",
        lambda fs, d: fs.acls.set(f"{d}/shared", parse_acl("user:ann:r--")),
        ("PUT", "/shared", "SETACL&aclspec=user:ann:r--"),
    ),
    (
        "default acl of a file",
        lambda fs, d: fs.acls.modify(f"{d}/file", parse_acl("default:user:ann:r--")),
        ("PUT", "/file", "MODIFYACLENTRIES&aclspec=default:user:ann:r--"),
    ),
    (
        "default acl that goes",
        lambda fs, d: fs.acls.remove_default(f"{d}/shared"),
        ("PUT", "/shared", "REMOVEDEFAULTACL"),
    ),
    ("acl that goes", lambda fs, d: fs.acls.remove(f"{d}/shared"), ("PUT", "/shared", "REMOVEACL")),
    (
        "acl, by one who may not",
        lambda fs, d: fs.acls.set(f"{d}/closed", parse_acl("user::rwx,group::---,other::---")),
        ("PUT", "/closed", "SETACL&aclspec=user::rwx,group::---,other::---"),
    ),
    ("truncate", lambda fs, d: fs.truncate(f"{d}/file", 1), ("POST", "/file", "TRUNCATE&newlength=1")),
    ("truncate of more", lambda fs, d: fs.truncate(f"{d}/file", 9), ("POST", "/file", "TRUNCATE&newlength=9")),
    ("concat", lambda fs, d: fs.concat(f"{d}/file", [f"{d}/other"]), ("POST", "/file", "CONCAT&sources={}/other")),
    (
        "concat with itself",
        lambda fs, d: fs.concat(f"{d}/file", [f"{d}/file"]),
        ("POST", "/file", "CONCAT&sources={}/file"),
    ),
    (
        "snapshots, by one who may not",
        lambda fs, d: fs.snapshots.allow(f"{d}/tree"),
        ("PUT", "/tree", "ALLOWSNAPSHOT"),
    ),
    (
        "snapshot where none is allowed",
        lambda fs, d: fs.snapshots.create(f"{d}/tree", "s"),
        ("PUT", "/tree", "CREATESNAPSHOT&snapshotname=s"),
    ),
    (
        "change of a snapshot",
        lambda fs, d: fs.mkdirs(f"{d}/.snapshot/s/x"),
        ("PUT", "/.snapshot/s/x", "MKDIRS"),
    ),
    ("a relative path", lambda fs, d: fs.status(f"{d}/../x"), ("GET", "/%2E%2E/x", "GETFILESTATUS")),
]


@pytest.fixture
def twins(files: PeaceFileSystem, superuser: PeaceFileSystem) -> tuple[str, str]:
    """Make two directories of alice's with equal contents."""
    paths = (f"/faces/{os.urandom(4).hex()}/a", f"/faces/{os.urandom(4).hex()}/a")
    for path in paths:
        for name, data in (("file", b"seven b"), ("other", b"12"), ("tree/deep/leaf", b"1")):
            files.write(f"{path}/{name}", data)
        superuser.mkdirs(f"{path}/closed", 0o700)
        files.mkdirs(f"{path}/shared")
        files.acls.modify(f"{path}/shared", parse_acl("user:bob:rwx,default:user:bob:r--"))
    return paths


@pytest.fixture
def http(shared_cluster: LocalCluster) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shared_cluster.http_address) as client:
        yield client


def seen(files: PeaceFileSystem, top: str) -> list[tuple[object, ...]]:
    """Return everything below a directory, except times from a clock and names of the other directory."""
    return [
        (
            entry.path.removeprefix(top),
            entry.is_directory,
            entry.length,
            entry.owner,
            entry.group,
            entry.permission,
            entry.replication,
            acl_text(files.acls.get(entry.path)),
            entry.modified_ms if entry.modified_ms < 1000 else None,
        )
        for _, directories, found in files.walk(top)
        for entry in sorted([*directories, *found], key=lambda each: each.path)
        if not entry.path.endswith("closed")
    ]


@pytest.mark.parametrize(("ours", "theirs"), [call[1:] for call in CALLS], ids=[call[0] for call in CALLS])
def test_name_call_ends_as_over_webhdfs(
    files: PeaceFileSystem,
    superuser: PeaceFileSystem,
    http: httpx.Client,
    twins: tuple[str, str],
    ours: Ours,
    theirs: Theirs,
) -> None:
    mine, other = twins
    refusal: tuple[str, str] | None = None
    try:
        ours(files, mine)
    except PeacefsError as error:
        refusal = error.code, error.message.replace(mine, "TOP")
    method, path, operation = theirs
    url = f"/webhdfs/v1{other}{path}?user.name=alice&op={operation.format(other)}"
    answer = http.request(method, url)
    if refusal is None:
        assert answer.status_code == 200, answer.text
    else:
        told: dict[str, Any] = answer.json()["RemoteException"]
        assert told.get("peacefsCode") == refusal[0], (told, refusal)
        if refusal[0] != "BadRequest":
            assert told["message"].replace(other, "TOP") == refusal[1]
    assert seen(superuser, mine) == seen(superuser, other)


def test_listing_of_several_pages_is_what_webhdfs_lists(
    files: PeaceFileSystem, http: httpx.Client, home: str
) -> None:
    names = sorted(f"{number:04}-ä" for number in range(list_page_entries + 5))
    for name in names:
        files.mkdirs(f"{home}/{name}")
    assert [entry.name for entry in files.list(home)] == names
    assert [len(page.entries) for page in files.pages(home)] == [list_page_entries, 5]
    answer = http.get(f"/webhdfs/v1{home}", params={"op": "LISTSTATUS", "user.name": "alice"}).json()
    assert [entry["pathSuffix"] for entry in answer["FileStatuses"]["FileStatus"]] == names


def test_metrics_count_calls_about_names(files: PeaceFileSystem, http: httpx.Client, home: str) -> None:
    def counted() -> dict[str, float]:
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(http.get("/metrics").text):
            for sample in family.samples:
                if sample.name == "peacefs_call_seconds_count":
                    operation = sample.labels["operation"]
                    found[operation] = found.get(operation, 0.0) + sample.value
        return found

    before = counted()
    for _ in range(3):
        files.exists(f"{home}/none")
    files.mkdirs(f"{home}/made")
    after = counted()
    assert after["GetFileInfo"] - before.get("GetFileInfo", 0) >= 3
    assert after["Mkdirs"] - before.get("Mkdirs", 0) >= 1
