"""`peacefs mount` as an operator uses it: in the background, by mount(8), as several users, with mistakes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.mounted_tree import mounted, require_fuse
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

pytestmark = pytest.mark.cluster
_HELPER = Path(__file__).parents[2] / "deploy" / "mount" / "mount.peacefs"

Mount = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def mount(shared_cluster: LocalCluster) -> Mount:
    """Run the command as alice, and wait until it exits."""
    require_fuse()

    def run(
        *arguments: str | Path, address: str = shared_cluster.http_address
    ) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"HADOOP_USER_NAME": "alice", "PEACEFS_COORDINATOR": address}
        command = [sys.executable, "-m", "peacefs", "mount", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)

    return run


def unmount(directory: Path) -> None:
    done = subprocess.run(
        ["fusermount3", "-u", directory], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_mount_in_the_background_returns_when_it_is_mounted(
    mount: Mount, home: str, files: PeaceFileSystem, tmp_path: Path
) -> None:
    directory = tmp_path / "peace"
    directory.mkdir()
    done = mount("--background", directory)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (directory / home.lstrip("/") / "file").write_text("text")
    assert files.read(f"{home}/file") == b"text"
    again = mount(directory)
    assert (again.returncode, again.stderr) == (
        1,
        f"peacefs: mount: something is mounted on {directory} already: `umount {directory}`\n",
    )
    unmount(directory)
    assert not directory.is_mount()


def test_mount_helper_takes_what_mount_gives_it(
    mount: Mount, shared_cluster: LocalCluster, home: str, files: PeaceFileSystem, tmp_path: Path
) -> None:
    directory, program = tmp_path / "peace", tmp_path / "bin" / "peacefs"
    directory.mkdir()
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m peacefs "$@"\n')
    program.chmod(0o755)
    # The helper first looks in the directories of an installation.
    helper = tmp_path / "mount.peacefs"
    helper.write_text(_HELPER.read_text().replace("PATH=/usr/local/bin", f"PATH={program.parent}:/usr/local/bin"))
    options = f"rw,_netdev,nofail,staging={tmp_path},staging_size=1m,x-systemd.automount"
    command = ["sh", str(helper), shared_cluster.http_address, str(directory), "-n", "-o", "ro", "-o", options]
    subprocess.run(command, check=True, timeout=120)
    files.write(f"{home}/file", b"text")
    assert (directory / home.lstrip("/") / "file").read_bytes() == b"text"
    with pytest.raises(OSError, match="Read-only"):
        (directory / home.lstrip("/") / "other").touch()
    unmount(directory)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{here}/none"], "{here}/none is not a directory that exists: `mkdir {here}/none`"),
        (["{here}", "--staging", "{here}/none"], "the staging directory {here}/none does not exist"),
        (
            ["{here}", "--staging", "{here}"],
            "the staging directory {here} is below {here}, where files are mounted",
        ),
        (["{here}", "--staging-size", "much"], "`much' is no number of bytes: try 1000, 64m or 10g"),
        (["{here}", "--staging-size", "0"], "--staging-size must not be 0"),
        (["{here}", "-o", "ro,mountpoint=/x"], "mountpoint=/x is no option of a mount: leave it out after -o"),
    ],
)
def test_mistakes_are_one_line(mount: Mount, tmp_path: Path, arguments: list[str], said: str) -> None:
    done = mount(*(each.format(here=tmp_path) for each in arguments))
    assert (done.returncode, done.stderr) == (1, f"peacefs: mount: {said.format(here=tmp_path)}\n")


@pytest.mark.parametrize("background", [[], ["--background"]])
def test_coordinator_that_is_not_there_is_one_line(mount: Mount, tmp_path: Path, background: list[str]) -> None:
    done = mount(*background, tmp_path, address="http://127.0.0.1:1")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("peacefs: mount: ")
    assert not tmp_path.is_mount()


def test_mount_that_died_is_reported(mount: Mount, shared_cluster: LocalCluster, tmp_path: Path) -> None:
    directory = tmp_path / "peace"
    with mounted(shared_cluster.http_address, directory) as dead:
        dead.kill()
        done = mount(directory)
        assert done.returncode == 1
        assert done.stderr == (
            f"peacefs: mount: {directory}: Transport endpoint is not connected: `umount {directory}` first\n"
        )


def test_interrupted_mount_unmounts(shared_cluster: LocalCluster, tmp_path: Path) -> None:
    require_fuse()
    with mounted(shared_cluster.http_address, tmp_path / "peace") as mount:
        mount.process.terminate()
        assert mount.process.wait(30) == 0
        assert not mount.directory.is_mount()


@pytest.mark.skipif(os.getuid() != 0, reason="only root runs programs as other users")
def test_users_of_one_mount_have_their_own_files(
    shared_cluster: LocalCluster, superuser: PeaceFileSystem, tmp_path_factory: pytest.TempPathFactory
) -> None:
    require_fuse()
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    directory = Path(os.environ.get("TMPDIR", "/tmp")) / f"peacefs-users-{os.urandom(4).hex()}"
    shared = f"/shared-{os.urandom(4).hex()}"
    superuser.mkdirs(shared, 0o1777)
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    try:
        with mounted(shared_cluster.http_address, directory, "-o", "allow_other", user=superuser.user) as mount:
            place = mount.directory / shared.lstrip("/")
            subprocess.run([*as_nobody, "sh", "-c", f"echo mine > {place}/file; mkdir {place}/d"], check=True)
            assert [(place / name).stat().st_uid for name in ("file", "d")] == [65534, 65534]
            assert superuser.status(f"{shared}/file").owner == "nobody"
            (place / "of-root").write_text("secret")
            (place / "of-root").chmod(0o600)
            refused = subprocess.run([*as_nobody, "cat", place / "of-root"], capture_output=True, check=False)
            assert b"Permission denied" in refused.stderr
            wait_until(lambda: superuser.exists(f"{shared}/of-root"), "the file")
    finally:
        directory.rmdir()
        directory.with_name(f"{directory.name}.log").unlink()
