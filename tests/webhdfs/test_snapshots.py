"""Snapshots over WebHDFS, exactly as in HDFS where stock clients depend on it."""

from __future__ import annotations

import re

import pytest
from support.webhdfs_operations import CHANGES

SNAPSHOT = "org.apache.hadoop.hdfs.protocol.SnapshotException"
READ_ONLY = "org.apache.hadoop.hdfs.protocol.SnapshotAccessControlException"


@pytest.fixture
def home(names, request):
    """Return a directory for this test, in which snapshots are allowed."""
    path = "/snapshots-" + re.sub(r"\W+", "-", request.node.name)
    assert names.ask("PUT", f"{path}/sub", "MKDIRS").json == {"boolean": True}
    allowed = names.ask("PUT", path, "ALLOWSNAPSHOT")
    assert (allowed.status, allowed.body) == (200, b"")
    return path


def listed(names, path):
    statuses = names.ask("GET", path, "LISTSTATUS").json["FileStatuses"]["FileStatus"]
    return [status["pathSuffix"] for status in statuses]


def test_a_snapshot_has_a_path_and_is_listed_below_it(names, home):
    assert names.ask("PUT", home, "CREATESNAPSHOT", snapshotname="s1").json == {"Path": f"{home}/.snapshot/s1"}
    unnamed = names.ask("PUT", home, "CREATESNAPSHOT").json["Path"]
    assert re.fullmatch(rf"{home}/\.snapshot/s\d{{8}}-\d{{6}}\.\d{{3}}", unnamed)
    names.ask("DELETE", f"{home}/sub", "DELETE")
    names.ask("PUT", f"{home}/also", "MKDIRS")
    assert listed(names, home) == ["also"]
    assert listed(names, f"{home}/.snapshot") == ["s1", unnamed.rpartition("/")[2]]
    assert listed(names, f"{home}/.snapshot/s1") == ["sub"]
    batch = names.ask("GET", f"{home}/.snapshot", "LISTSTATUS_BATCH", startafter="s1").json["DirectoryListing"]
    assert len(batch["partialListing"]["FileStatuses"]["FileStatus"]) == 1
    for path in (".snapshot", ".snapshot/s1", ".snapshot/s1/sub"):
        assert names.ask("GET", f"{home}/{path}", "GETFILESTATUS").json["FileStatus"]["type"] == "DIRECTORY"
        assert names.ask("GET", f"{home}/{path}", "CHECKACCESS", fsaction="r-x").status == 200
    summary = names.ask("GET", f"{home}/.snapshot/s1", "GETCONTENTSUMMARY").json["ContentSummary"]
    assert summary["directoryCount"] == 2
    for path in (".snapshot/s2", ".snapshot/s1/x", "also/.snapshot", ".snapshot/s1/.snapshot"):
        status, _, message = names.ask("GET", f"{home}/{path}", "GETFILESTATUS").error
        assert status == 404 and f"{home}/{path}" in message


def test_snapshots_and_the_directories_that_allow_them_are_listed(names, home):
    for name in ("s2", "s1"):
        names.ask("PUT", home, "CREATESNAPSHOT", snapshotname=name)
    found = names.ask("GET", "/", "GETSNAPSHOTTABLEDIRECTORYLIST").json["SnapshottableDirectoryList"]
    (ours,) = [one for one in found if one["dirStatus"]["pathSuffix"] == home[1:]]
    assert ours.pop("dirStatus")["type"] == "DIRECTORY"
    assert ours == {"parentFullPath": "/", "snapshotNumber": 2, "snapshotQuota": 65536}
    first, second = names.ask("GET", home, "GETSNAPSHOTLIST").json["SnapshotList"]
    assert first["snapshotID"] > second["snapshotID"], "in order of their names, numbered by time"
    shown = [
        (one["dirStatus"]["pathSuffix"], one["parentFullPath"], one["deletionStatus"]) for one in (first, second)
    ]
    assert shown == [("s1", home, "ACTIVE"), ("s2", home, "ACTIVE")]
    assert names.ask("GET", f"{home}/sub", "GETSNAPSHOTLIST").error[:2] == (403, SNAPSHOT)


def test_a_difference_is_reported_as_hdfs_does(names, home):
    names.ask("PUT", home, "CREATESNAPSHOT", snapshotname="a")
    names.ask("PUT", f"{home}/sub", "RENAME", destination=f"{home}/bus")
    names.ask("PUT", f"{home}/new", "MKDIRS")
    names.ask("PUT", home, "CREATESNAPSHOT", snapshotname="b")
    report = {
        "diffList": [
            {"sourcePath": "", "type": "MODIFY"},
            {"sourcePath": "new", "type": "CREATE"},
            {"sourcePath": "sub", "targetPath": "bus", "type": "RENAME"},
        ],
        "fromSnapshot": "a",
        "snapshotRoot": home,
        "toSnapshot": "b",
    }
    asked = names.ask("GET", home, "GETSNAPSHOTDIFF", oldsnapshotname="a", snapshotname="b")
    assert asked.json == {"SnapshotDiffReport": report}
    now = names.ask("GET", home, "GETSNAPSHOTDIFF", oldsnapshotname="a").json["SnapshotDiffReport"]
    assert now == report | {"toSnapshot": ""}
    wrong = names.ask("GET", home, "GETSNAPSHOTDIFF", oldsnapshotname="x", snapshotname="b")
    assert wrong.error == (403, SNAPSHOT, f"Cannot find the snapshot of directory {home} with name x")


def test_a_snapshot_is_renamed_and_dropped(names, home):
    names.ask("PUT", home, "CREATESNAPSHOT", snapshotname="a")
    renamed = names.ask("PUT", home, "RENAMESNAPSHOT", oldsnapshotname="a", snapshotname="b")
    assert (renamed.status, renamed.body) == (200, b"")
    refused = names.ask("PUT", home, "DISALLOWSNAPSHOT")
    assert refused.error[:2] == (403, SNAPSHOT) and "has snapshot(s)" in refused.error[2]
    assert names.ask("DELETE", home, "DELETE", recursive="true").error[:2] == (403, SNAPSHOT)
    assert names.ask("PUT", home, "RENAME", destination="/away").error[:2] == (403, SNAPSHOT)
    assert names.ask("DELETE", home, "DELETESNAPSHOT", snapshotname="b").status == 200
    assert names.ask("PUT", home, "DISALLOWSNAPSHOT").status == 200
    assert names.ask("PUT", home, "CREATESNAPSHOT").error == (
        403,
        SNAPSHOT,
        f"Directory is not a snapshottable directory: {home}",
    )


@pytest.mark.parametrize(
    ("method", "op", "query"),
    [*CHANGES, ("PUT", "ALLOWSNAPSHOT", {})],
)
def test_snapshot_refuses_every_change(names, home, method, op, query):
    names.ask("PUT", home, "CREATESNAPSHOT", snapshotname="s")
    reply = names.ask(method, f"{home}/.snapshot/s/sub", op, **query)
    assert reply.error == (403, READ_ONLY, "Modification on a read-only snapshot is disallowed")


def test_a_difference_is_listed_by_directories_for_clients_that_put_it_together(names, home):
    names.ask("PUT", f"{home}/gone", "MKDIRS")
    names.ask("PUT", home, "CREATESNAPSHOT", snapshotname="a")
    names.ask("PUT", f"{home}/other", "MKDIRS")
    names.ask("PUT", f"{home}/sub", "RENAME", destination=f"{home}/other/bus")
    names.ask("DELETE", f"{home}/gone", "DELETE")
    names.ask("PUT", home, "CREATESNAPSHOT", snapshotname="b")
    asked = {"oldsnapshotname": "a", "snapshotname": "b", "snapshotdiffindex": -1}
    listing = names.ask("GET", home, "GETSNAPSHOTDIFFLISTING", **asked).json["SnapshotDiffReportListing"]
    assert (listing["lastPath"], listing["lastIndex"], listing["isFromEarlier"]) == ("", -1, True)
    (top,) = [one for one in listing["modifyList"] if one["sourcePath"] == ""]
    assert top["dirId"] == top["fileId"] and top["isReference"], "a directory whose entries differ"
    deleted = {one["sourcePath"]: one for one in listing["deleteList"]}
    created = {one["sourcePath"]: one for one in listing["createList"]}
    assert set(deleted) == {"gone", "sub"} and set(created) == {"other", "other/bus"}
    assert (deleted["sub"]["targetPath"], deleted["sub"]["isReference"]) == ("other/bus", True)
    assert deleted["sub"]["fileId"] == created["other/bus"]["fileId"]
    assert deleted["sub"]["dirId"] == deleted["gone"]["dirId"] == created["other"]["dirId"] == top["dirId"]
    assert created["other/bus"]["dirId"] == created["other"]["fileId"]
    assert not deleted["gone"]["isReference"]
