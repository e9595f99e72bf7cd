"""`peacefs fsck` on a real cluster whose datanodes die, and whose replicas rot and vanish from the disk."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from peacefs.client.command_line.application import application
from peacefs.client.command_line.fsck import exit_status
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.limits import small_chunk_bytes_max, unreferenced_chunk_kept_s
from peacefs.protocol.values.fsck_findings import Finding, Tally

pytestmark = pytest.mark.cluster

WaitUntil = Callable[..., None]
LARGE = small_chunk_bytes_max + 100_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Yield a cluster that reads every replica about once a second."""
    os.environ["PEACEFS_SCRUB_DAYS"] = "0.00001"
    os.environ["PEACEFS_SCRUB_RATE"] = "1000000000"
    try:
        with LocalCluster(tmp_path_factory.mktemp("fsck"), datanodes=3, port=0) as cluster:
            yield cluster
    finally:
        del os.environ["PEACEFS_SCRUB_DAYS"], os.environ["PEACEFS_SCRUB_RATE"]


@pytest.fixture
def files(cluster: LocalCluster) -> Iterator[PeaceFileSystem]:
    with PeaceFileSystem(cluster.http_address, user="alice") as opened:
        yield opened


class Fsck:
    """The output of the command, and its exit status."""

    def __init__(self, cluster: LocalCluster, *arguments: str) -> None:
        result = CliRunner().invoke(application, ["fsck", f"--coordinator={cluster.http_address}", *arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        self.status = result.exit_code
        self.lines = result.stdout.splitlines()
        self.stderr = result.stderr

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


def replica_files(cluster: LocalCluster, data: bytes) -> list[Path]:
    """Return the files on the datanodes' disks that hold `data`."""
    return [
        path
        for member in cluster.datanodes
        for path in (cluster.directory / member.name).rglob("*")
        if path.is_file() and data in path.read_bytes()
    ]


def flip(path: Path, data: bytes) -> None:
    """Flip a bit in the middle of `data` on disk."""
    content = path.read_bytes()
    at = content.index(data) + len(data) // 2
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([content[at] ^ 1]))


def test_a_healthy_tree_says_so_like_hdfs_fsck(cluster: LocalCluster, files: PeaceFileSystem) -> None:
    files.mkdirs("/well/empty")
    files.write("/well/small", b"x" * 100)
    files.write("/well/none", b"")
    fsck = Fsck(cluster, "/well")
    assert fsck.status == 0
    shown = {line.split(":")[0].strip(): line.split(":", 1)[1].strip() for line in fsck.lines if ":" in line}
    assert shown["Status"] == "HEALTHY"
    assert shown["Number of datanodes"] == "3"
    assert shown["Number of racks"] == "2"
    assert shown["Total directories"] == "2"
    assert shown["Total files"] == "2 (0 open)"
    assert shown["Total chunks"] == "1 (average size 100 B)"
    assert shown["Readable chunks"] == "1 (100.0 %)"
    assert shown["Average replication"] == "3.00"
    assert fsck.lines[-1] == "The filesystem under path '/well' is HEALTHY"
    assert not any("/well/small" in line for line in fsck.lines)
    listed = Fsck(cluster, "/well", "--files").lines
    assert listed[:2] == [
        "/well/none 0 bytes, replication 3, 0 chunks: OK",
        "/well/small 100 bytes, replication 3, 1 chunk: OK",
    ]


def test_json_is_one_object_a_line_and_the_summary_last(cluster: LocalCluster, files: PeaceFileSystem) -> None:
    files.write("/machine/readable", b"x" * 100)
    *listed, summary = Fsck(cluster, "/machine", "--json", "--files").records
    assert [(record["type"], record["path"], record["findings"]) for record in listed] == [
        ("file", "/machine/readable", [])
    ]
    assert (summary["type"], summary["status"], summary["exit_status"]) == ("summary", "HEALTHY", 0)
    assert (summary["files"], summary["chunks"], summary["replicas"]) == (1, 1, 3)
    assert summary["cluster"]["datanodes"] == 3


def test_fsck_tells_wrong_arguments_apart_from_findings(cluster: LocalCluster) -> None:
    nothing = Fsck(cluster, "/nothing/here")
    assert nothing.status == 1
    assert nothing.stderr == "peacefs: fsck: `/nothing/here': No such file or directory\n"
    assert Fsck(cluster, "--no-such-option").status == 2


def test_a_file_with_more_replicas_than_one_rack_can_give_is_under_replicated(
    cluster: LocalCluster, files: PeaceFileSystem
) -> None:
    files.write("/wanting/file", b"x" * 100, replication=5)
    fsck = Fsck(cluster, "/wanting")
    assert fsck.status == 3
    assert fsck.lines[0] == "/wanting/file 100 bytes, replication 5, 1 chunk: under-replicated"
    assert "under-replicated: 3 of 5 replicas: " in fsck.lines[1]
    assert fsck.lines[-1] == "The filesystem under path '/wanting' is UNDER-REPLICATED"


def _read_terminal(terminal: int) -> bytes:
    """Return everything written to a terminal whose other end is closed, and close it."""
    shown = b""
    # A read may return only a part. When no writer is left, Linux answers EIO at the end.
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 1 << 16):
            shown += part
    os.close(terminal)
    return shown


def test_fsck_findings_go_to_stdout_and_progress_to_the_terminal(
    cluster: LocalCluster, files: PeaceFileSystem
) -> None:
    files.write("/terminal/file", b"x" * 100, replication=5)
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "peacefs", "fsck", "/terminal", f"--coordinator={cluster.http_address}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=end, timeout=180, check=False)
    os.close(end)
    shown = _read_terminal(terminal).decode()
    assert done.returncode == 3
    assert done.stdout.decode().startswith("/terminal/file 100 bytes, ")
    assert "1 files, 1 chunks inspected" in shown
    assert "/terminal/file" not in shown


@pytest.mark.evidence("create-fails")
def test_creates_that_are_refused_repeated_or_never_carried_out_leave_nothing(
    cluster: LocalCluster, wait_until: WaitUntil
) -> None:
    """Send them over WebHDFS, as stock clients do."""

    def begun(path: str) -> str:
        target = f"{cluster.http_address}/webhdfs/v1{path}?op=CREATE&user.name=alice"
        answer = httpx.put(target)
        assert answer.status_code == 307
        return answer.headers["location"]

    wait_until(
        lambda: Fsck(cluster, "/", "--json").records[-1]["cluster"]["orphaned_replicas"] == 0, "all is quiet"
    )
    for number in range(5):
        begun(f"/begun/{number}")
    taken, refused = begun("/begun/twice"), begun("/begun/twice")
    assert httpx.put(taken, content=b"first").status_code == 201
    assert httpx.put(refused, content=b"second").status_code == 403
    assert httpx.put(taken, content=b"first").status_code == 201

    def left() -> tuple[int, int, int]:
        of = Fsck(cluster, "/begun", "--json").records[-1]
        status = httpx.get(f"{cluster.http_address}/v1/status").json()
        return of["cluster"]["chunks_being_written"], of["files"], status["unreferenced"]["chunks"]

    # Long before unreported chunks become garbage.
    wait_until(
        lambda: left() == (0, 1, 0), "nothing is left but the file", timeout_s=unreferenced_chunk_kept_s / 2
    )


def test_a_dead_datanode_leaves_replicas_lacking_until_it_is_back(
    cluster: LocalCluster, files: PeaceFileSystem, wait_until: WaitUntil
) -> None:
    files.write("/orphaned/by/death", os.urandom(LARGE))
    files.write("/orphaned/alone", b"x", replication=1)
    assert Fsck(cluster, "/orphaned").status == 0
    victim = cluster.datanodes[2]
    victim.kill()
    wait_until(lambda: Fsck(cluster, "/orphaned").status in (3, 5), "the death is noticed")
    records = Fsck(cluster, "/orphaned/by", "--json").records
    assert records[0]["findings"][-1] == "under-replicated"
    assert victim.readiness.node not in records[0]["unhealthy"][0]["good"]
    assert records[-1]["lacking_replicas"] == 1
    cluster.restart(victim)
    wait_until(lambda: Fsck(cluster, "/orphaned").status == 0, "all is well again")


@pytest.mark.evidence("files-swapped")
def test_a_rotten_replica_that_nobody_reads_is_replaced(
    cluster: LocalCluster, files: PeaceFileSystem, wait_until: WaitUntil
) -> None:
    data = os.urandom(LARGE)
    files.write("/rotten/once", data)
    rotten, *_sound = replica_files(cluster, data)
    flip(rotten, data)
    wait_until(lambda: len(replica_files(cluster, data)) == 3, "the rotten replica is replaced")
    wait_until(lambda: Fsck(cluster, "/rotten").status == 0, "all is well again")
    assert files.read("/rotten/once") == data


def test_data_that_rotted_everywhere_is_missing_and_listed(
    cluster: LocalCluster, files: PeaceFileSystem, wait_until: WaitUntil
) -> None:
    large, small = os.urandom(LARGE), os.urandom(5000)
    files.write("/lost/large", large, replication=1)
    files.write("/lost/small", small, replication=1)
    for data in (large, small):
        for path in replica_files(cluster, data):
            flip(path, data)
    wait_until(lambda: len(Fsck(cluster, "/lost", "--list-corrupt").lines) >= 5, "the rot is found")
    listed = Fsck(cluster, "/lost", "--list-corrupt")
    assert listed.status == 5
    assert [line.split("\t")[1:] for line in listed.lines[:4]] == [
        ["corrupt", "/lost/large"],
        ["missing", "/lost/large"],
        ["corrupt", "/lost/small"],
        ["missing", "/lost/small"],
    ]
    assert listed.lines[-1] == "The filesystem under path '/lost' is CORRUPT"


def test_replicas_whose_files_were_deleted_from_the_disk_are_missed(
    cluster: LocalCluster, files: PeaceFileSystem, wait_until: WaitUntil
) -> None:
    data, kept = os.urandom(LARGE), os.urandom(LARGE)
    files.write("/gone/all", data, replication=2)
    files.write("/gone/one", kept, replication=2)
    for path in replica_files(cluster, data):
        path.unlink()
    replica_files(cluster, kept)[0].unlink()
    wait_until(lambda: Fsck(cluster, "/gone/all").status == 5, "the loss is found")
    wait_until(lambda: len(replica_files(cluster, kept)) == 2, "the other is made up for")
    wait_until(lambda: Fsck(cluster, "/gone/one").status == 0, "all is well again")


@pytest.mark.parametrize(
    ("findings", "status"),
    [
        ([], 0),
        ([Finding.OVER_REPLICATED], 3),
        ([Finding.MISPLACED], 3),
        ([Finding.UNDER_REPLICATED, Finding.OVER_REPLICATED], 3),
        ([Finding.CORRUPT, Finding.UNDER_REPLICATED], 4),
        ([Finding.MISSING, Finding.CORRUPT], 5),
    ],
)
def test_the_exit_status_is_that_of_the_worst_finding(findings: list[Finding], status: int) -> None:
    assert exit_status(Tally(chunks_with=dict.fromkeys(findings, 1))) == status
