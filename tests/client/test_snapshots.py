"""Snapshots on a real cluster: taken, read, compared, restored and deleted, as a user does."""

from __future__ import annotations

import getpass
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from peacefs.client.command_line.application import application
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import AccessDenied, SnapshotIsReadOnly, SnapshotRefused

pytestmark = pytest.mark.cluster
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(shared_cluster: LocalCluster) -> Run:
    """Run a command as a user. Return its exit status, stdout and stderr."""

    def run(user: str, *arguments: str) -> tuple[int, str, str]:
        environment = {"PEACEFS_COORDINATOR": shared_cluster.http_address, "HADOOP_USER_NAME": user}
        result = CliRunner().invoke(application, ["snapshot", *arguments], env=environment, prog_name="peacefs")
        return result.exit_code, result.stdout, result.stderr

    return run


@pytest.fixture
def place(shared_cluster: LocalCluster, home: str) -> str:
    """Return a directory of alice's in which snapshots are allowed."""
    with PeaceFileSystem(shared_cluster.http_address, user=getpass.getuser()) as superusers:
        superusers.snapshots.allow(home)
    return home


def test_a_file_is_read_as_it_was(files: PeaceFileSystem, place: str) -> None:
    files.write(f"{place}/d/f", b"old" * 100_000)
    seen = files.snapshots.create(place, "monday")
    assert seen == f"{place}/.snapshot/monday"
    files.write(f"{place}/d/f", b"new", overwrite=True)
    files.delete(f"{place}/d", recursive=True)
    assert files.read(f"{seen}/d/f") == b"old" * 100_000
    with files.open(f"{seen}/d/f") as source:
        source.seek(299_997)
        assert source.read() == b"old"
    assert [entry.path for entry in files.list(seen)] == [f"{seen}/d"]
    assert files.content_summary(seen).length == 300_000
    assert [entry.name for entry in files.list(place)] == [], ".snapshot itself is not listed"
    for change in (
        lambda: files.delete(f"{seen}/d/f"),
        lambda: files.write(f"{seen}/g", b""),
        lambda: files.mkdirs(f"{seen}/e"),
        lambda: files.rename(f"{seen}/d", f"{place}/d"),
        lambda: files.set_permission(f"{seen}/d", 0o777),
    ):
        with pytest.raises(SnapshotIsReadOnly, match="read-only snapshot"):
            change()
    with pytest.raises(SnapshotRefused, match="already has snapshots"):
        files.delete(place, recursive=True)
    files.snapshots.delete(place, "monday")
    assert not files.exists(seen)


def test_permissions_hold_in_snapshots(shared_cluster: LocalCluster, files: PeaceFileSystem, place: str) -> None:
    files.write(f"{place}/f", b"mine")
    files.set_permission(f"{place}/f", 0o600)
    seen = files.snapshots.create(place)
    files.set_permission(f"{place}/f", 0o644)
    with PeaceFileSystem(shared_cluster.http_address, user="eve") as eves:
        assert eves.read(f"{place}/f") == b"mine"
        for attempt in (
            lambda: eves.read(f"{seen}/f"),
            lambda: eves.snapshots.create(place),
            lambda: eves.snapshots.restore(place, "s"),
            lambda: eves.snapshots.allow(place),
        ):
            with pytest.raises(AccessDenied):
                attempt()
        files.set_permission(place, 0o700)
        with pytest.raises(AccessDenied, match="access=EXECUTE"):
            eves.status(seen)


def test_the_commands(run: Run, files: PeaceFileSystem, place: str) -> None:
    files.write(f"{place}/kept", b"1")
    files.write(f"{place}/gone", b"2")
    assert run("alice", "create", place, "a") == (0, f"Created snapshot {place}/.snapshot/a\n", "")
    files.delete(f"{place}/gone")
    files.rename(f"{place}/kept", f"{place}/moved")
    files.write(f"{place}/new", b"3")
    assert run("alice", "create", place)[0] == 0
    assert run("alice", "diff", place, "a") == (0, "M\t.\n-\t./gone\nR\t./kept -> ./moved\n+\t./new\n", "")
    names = run("alice", "ls", place)[1].split()
    assert names[0] == "a" and len(names) == 2
    assert run("alice", "diff", place, names[1], ".") == (0, "", "")
    assert run("alice", "restore", place, "a") == (0, "", "")
    assert {entry.name: files.read(entry.path) for entry in files.list(place)} == {"gone": b"2", "kept": b"1"}
    assert run("alice", "rename", place, "a", "b")[0] == 0
    for name in ("b", names[1]):
        assert run("alice", "rm", place, name) == (0, "", "")
    assert run("alice", "ls", place) == (0, "", "")
    status, _, said = run("alice", "rm", place, "b")
    assert status == 1 and "the snapshot does not exist" in said
    assert run(getpass.getuser(), "disallow", place)[0] == 0
    for command in ("create", "ls"):
        status, _, said = run("alice", command, place)
        assert status == 1 and "not a snapshottable directory" in said
    assert "No such file or directory" in run("alice", "ls", f"{place}/absent")[2]
    assert "Superuser privilege is required" in run("alice", "allow", place)[2]
    assert files.read(f"{place}/gone") == b"2", "what was restored does not need its snapshot"
