"""The stock Hadoop file system shell (`hdfs dfs`), unmodified, against real processes with a trash.

There is one JVM for all tests; every command is Hadoop's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("py4j.protocol")

from support.stock_hadoop import Hadoop, running_hadoop

from peacefs.client.local_cluster.cluster import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.cluster]


@dataclass
class Ran:
    """The output of a shell command, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Shell = Callable[..., Ran]


@pytest.fixture(scope="module")
def hadoop(stock_gateway: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hadoop]:
    directory = tmp_path_factory.mktemp("cluster")
    options = ("--trash-minutes", "60")
    with (
        LocalCluster(directory, datanodes=3, port=0, coordinator_options=options) as cluster,
        running_hadoop(stock_gateway, cluster.webhdfs_uri, {"fs.defaultFS": cluster.webhdfs_uri}) as hadoop,
    ):
        yield hadoop


@pytest.fixture(scope="module")
def shell(hadoop: Hadoop) -> Shell:
    """Run `hdfs dfs` with some arguments, in the JVM."""
    jvm = hadoop.jvm
    system, bytes_stream, print_stream = jvm.System, jvm.java.io.ByteArrayOutputStream, jvm.java.io.PrintStream

    def run(*arguments: str) -> Ran:
        out, err, before, before_err = bytes_stream(), bytes_stream(), system.out, system.err
        system.setOut(print_stream(out, True, "UTF-8"))
        system.setErr(print_stream(err, True, "UTF-8"))
        try:
            command = jvm.org.apache.hadoop.fs.FsShell(hadoop.conf)
            status = jvm.org.apache.hadoop.util.ToolRunner.run(command, hadoop.array(jvm.String, *arguments))
        finally:
            system.setOut(before)
            system.setErr(before_err)
        return Ran(status, out.toString("UTF-8"), err.toString("UTF-8"))

    return run


def test_rm_moves_to_the_trash_and_expunge_empties_it(hadoop, shell):
    hadoop.write("/trashed/file", b"x")
    moved = shell("-rm", "/trashed/file")
    assert moved.status == 0, moved
    current = f"/user/{hadoop.fs.getHomeDirectory().getName()}/.Trash/Current"
    assert hadoop.read(f"{current}/trashed/file") == b"x"
    assert shell("-rm", "-r", "-skipTrash", "/trashed").status == 0
    expunged = shell("-expunge", "-immediate")
    assert expunged.status == 0, expunged
    assert not hadoop.exists(current)
    assert shell("-expunge").status == 0


def test_count_ls_and_df_show_what_there_is(hadoop, shell):
    hadoop.write("/shown/file", b"abc")
    counted = shell("-count", "-e", "/shown/file", "/shown")
    assert counted.status == 0, counted
    assert [line.split() for line in counted.lines] == [
        ["0", "1", "3", "Replicated", "/shown/file"],
        ["1", "1", "3", "EC:", "/shown"],
    ]
    listed = shell("-ls", "-e", "/shown")
    assert (listed.status, "Replicated" in listed.out) == (0, True), listed
    space = shell("-df", "/")
    assert space.status == 0 and space.lines[0].split()[:3] == ["Filesystem", "Size", "Used"], space


def test_policies_are_told(hadoop):
    hadoop.write("/policies/file", b"x")
    path = hadoop.path("/policies/file")
    assert hadoop.fs.getStoragePolicy(path).getName() == "HOT"
    assert [policy.getName() for policy in hadoop.fs.getAllStoragePolicies()] == ["HOT"]
    assert hadoop.fs.getErasureCodingPolicy(path).isReplicationPolicy()
    assert list(hadoop.fs.getAllErasureCodingPolicies()) == []
    assert dict(hadoop.fs.getAllErasureCodingCodecs()) == {}


def test_difference_of_snapshots_is_put_together(hadoop):
    for name in ("sub/file", "gone/file"):
        hadoop.write(f"/compared/{name}", b"x")
    directory = hadoop.path("/compared")
    hadoop.fs.allowSnapshot(directory)
    hadoop.fs.createSnapshot(directory, "a")
    hadoop.write("/compared/new/file", b"x")
    hadoop.fs.rename(hadoop.path("/compared/sub"), hadoop.path("/compared/new/bus"))
    hadoop.fs.delete(hadoop.path("/compared/gone"), True)
    hadoop.fs.createSnapshot(directory, "b")
    report = hadoop.fs.getSnapshotDiffReport(directory, "a", "b")
    told = sorted(entry.toString() for entry in report.getDiffList())
    assert told == ["+\t./new", "-\t./gone", "M\t.", "R\t./sub -> ./new/bus"]


def test_attributes_are_set_and_got(hadoop, shell):
    hadoop.write("/attributes/file", b"x")
    for name, value in (("user.colour", "blue"), ("user.bits", "0x00ff"), ("user.empty", None)):
        given = ["-n", name, *(["-v", value] if value else [])]
        assert shell("-setfattr", *given, "/attributes/file").status == 0
    got = shell("-getfattr", "-d", "-e", "hex", "/attributes/file")
    assert set(got.lines) == {
        "# file: /attributes/file",
        "user.bits=0x00ff",
        "user.colour=0x626c7565",
        "user.empty",
    }
    assert shell("-getfattr", "-n", "user.colour", "/attributes/file").lines[-1] == 'user.colour="blue"'
    assert shell("-setfattr", "-x", "user.colour", "/attributes/file").status == 0
    missing = shell("-getfattr", "-n", "user.colour", "/attributes/file")
    assert missing.status == 1 and "At least one of the attributes provided was not found" in missing.err
    refused = shell("-setfattr", "-n", "raw.x", "-v", "y", "/attributes/file")
    assert refused.status == 1 and "permission for xattr: raw.x" in refused.err


def test_acls_are_set_and_got(hadoop, shell):
    hadoop.write("/acls/file", b"x")
    assert shell("-chmod", "640", "/acls/file").status == 0
    assert shell("-setfacl", "-m", "user:ann:rwx,group:staff:r--", "/acls/file").status == 0
    assert shell("-chmod", "650", "/acls/file").status == 0
    got = shell("-getfacl", "/acls/file")
    assert got.lines[3:] == [
        "user::rw-",
        "user:ann:rwx\t#effective:r-x",
        "group::r--",
        "group:staff:r--",
        "mask::r-x",
        "other::---",
        "",
    ]
    assert shell("-ls", "/acls").lines[-1].startswith("-rw-r-x---+")
    assert shell("-setfacl", "-x", "user:ann", "/acls/file").status == 0
    assert "ann" not in shell("-getfacl", "/acls/file").out
    assert shell("-setfacl", "-m", "default:user:bob:r-x", "/acls").status == 0
    hadoop.write("/acls/new", b"x")
    assert "user:bob:r-x" in shell("-getfacl", "/acls/new").out
    assert shell("-setfacl", "-k", "/acls").status == 0
    assert "default" not in shell("-getfacl", "/acls").out
    for path in ("/acls/file", "/acls/new"):
        assert shell("-setfacl", "-b", path).status == 0
        assert not shell("-ls", path).lines[-1].split()[0].endswith("+")
    assert shell("-setfacl", "--set", "user::rwx,group::r--,other::---,user:eve:r--", "/acls/file").status == 0
    refused = shell("-setfacl", "-m", "default:user:bob:r-x", "/acls/file")
    assert refused.status == 1 and "only directories may have a default ACL" in refused.err
