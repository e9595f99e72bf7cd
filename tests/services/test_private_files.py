"""Services keep their files private: new ones under any umask, and existing ones by mending their modes."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import StartupError
from peacefs.spark_connector.supervision.command_list import Start
from peacefs.spark_connector.supervision.run_account import Account

pytestmark = pytest.mark.cluster
_LARGE = os.urandom(3 << 20)
_STRANGER = 65534


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture
def place() -> Iterator[Path]:
    """Yield a directory that all users can enter, unlike those of pytest."""
    path = Path(tempfile.mkdtemp(prefix="peacefs-modes-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def all_below(directory: Path) -> list[Path]:
    return [directory, *sorted(directory.rglob("*"))]


def open_to_others(directory: Path) -> dict[str, str]:
    """Return everything in a directory that other users could access by its mode."""
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in all_below(directory)}
    return {str(path): f"{mode:04o}" for path, mode in modes.items() if mode & 0o077}


def as_stranger(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as another user. Skip the test if that is impossible."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can be another user, with setpriv")
    become = ["setpriv", f"--reuid={_STRANGER}", f"--regid={_STRANGER}", "--clear-groups"]
    return subprocess.run([*become, *command], capture_output=True, text=True, timeout=60, check=False)


def work(cluster: LocalCluster) -> None:
    """Make every kind of file that services make."""
    with PeaceFileSystem(cluster.http_address) as files:
        files.write("/large", _LARGE, replication=1)
        for number in range(5):
            files.write(f"/small-{number}", b"small", replication=1)


@pytest.mark.evidence("other-users")
def test_modes_are_private_under_any_umask(place: Path) -> None:
    with umask(0), LocalCluster(place / "c", datanodes=1, port=0) as cluster:
        work(cluster)
        wait_until((place / "c" / "datanode-1" / "commit.seen").exists, "the datanode has heard of a commit")
        assert open_to_others(place / "c") == {}
        made = {path.name for path in all_below(place / "c")}
        assert {"metadata.sqlite", "metadata.sqlite-wal", "metadata.sqlite-shm", "metadata.sqlite.commits"} <= made
        assert {"cluster.secret", "identity.json", "coordinator.log", "cluster.json", "commit.seen"} <= made
        for arguments in (("-c", cluster.http_address), ("--dir", str(place / "c" / "coordinator"))):
            backup = place / "backup"
            command = [
                sys.executable,
                "-P",
                "-m",
                "peacefs",
                "metadata",
                "backup",
                "--force",
                *arguments,
                str(backup),
            ]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            assert open_to_others(backup) == {}
        assert cluster.coordinator.log is not None
        assert "open to other users" not in cluster.coordinator.log.read_text()


@pytest.mark.evidence("other-users")
def test_modes_that_an_earlier_version_left_are_mended_with_one_line_each(place: Path) -> None:
    with LocalCluster(place / "c", datanodes=1, port=0) as cluster:
        work(cluster)
        cluster.stop()
        # Modes as with umask 022, and worse.
        for path in all_below(place / "c"):
            path.chmod(0o777 if path.is_dir() else 0o666)
        cluster.start()
        for name in ("c", "c/logs", "c/coordinator", "c/datanode-1"):
            assert stat.S_IMODE((place / name).stat().st_mode) == 0o700, name
        coordinator = place / "c" / "coordinator"
        assert open_to_others(coordinator) == {}
        for member in cluster.members:
            assert member.log is not None
            assert member.log.read_text().count("open to other users") == 1, member.name
            cluster_log = member.log.read_text()
            assert "mode 0777" in cluster_log
        for member in cluster.members:
            member.kill()
            cluster.restart(member)
            assert member.log is not None and "open to other users" not in member.log.read_text()
        with PeaceFileSystem(cluster.http_address) as files:
            wait_until(lambda: files.read("/large") == _LARGE, "the datanode is back")


@pytest.mark.evidence("other-users")
def test_modes_keep_another_user_from_reading_and_from_locking(place: Path) -> None:
    with umask(0), LocalCluster(place / "c", datanodes=1, port=0) as cluster:
        work(cluster)
        assert as_stranger("ls", str(place)).returncode == 0
        for path in all_below(place / "c"):
            reading = as_stranger("ls" if path.is_dir() else "cat", str(path))
            assert reading.returncode != 0 and "Permission denied" in reading.stderr, path
        lock = (
            "import fcntl, sys; file = open(sys.argv[1], 'rb'); "
            "fcntl.lockf(file, fcntl.LOCK_SH, 1, 120); print('locked')"
        )
        for name in ("metadata.sqlite", "metadata.sqlite-shm", "metadata.sqlite.lock"):
            locking = as_stranger("/usr/bin/env", "python3", "-c", lock, str(place / "c" / "coordinator" / name))
            assert "locked" not in locking.stdout
        with PeaceFileSystem(cluster.http_address) as files:
            files.write("/after", b"goes on", replication=1)


@pytest.mark.evidence("other-users")
def test_modes_that_cannot_be_mended_are_refused_in_one_line(place: Path) -> None:
    """The directory belongs to another user, and is open to all."""
    theirs = place / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    command = (
        sys.executable,
        "-P",
        "-m",
        "peacefs",
        "coordinator",
        f"--dir={theirs}",
        "--port=0",
        "--node-port=0",
    )
    if as_stranger(sys.executable, "-c", "import peacefs.coordinator.service").returncode:
        pytest.skip("another user cannot run the Python of these tests")
    done = as_stranger(*command)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "is open to other users" in done.stderr and "chown" in done.stderr
    assert list(theirs.iterdir()) == []


def test_modes_of_a_directory_that_all_share_are_left_alone(place: Path) -> None:
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "somebody-else-s").write_text("theirs")
    cluster = LocalCluster(place / "c", datanodes=1, port=0)
    (place / "c").mkdir()
    (place / "c" / "cluster.json").write_text('{"format": 1, "datanodes": 1}')
    (place / "c" / "coordinator").symlink_to(shared)
    with pytest.raises(StartupError, match="is shared by all users"):
        cluster.start()
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777


@pytest.mark.evidence("other-users")
def test_modes_of_an_agent_s_directory_and_its_logs_are_private(place: Path) -> None:
    """The agent needs no coordinator for that; the guard process makes the log."""
    secret, commands, directory = place / "secret", place / "commands.toml", place / "agent"
    secret.write_text("x" * 40)
    secret.chmod(0o600)
    commands.write_text("[commands.nothing]\nprogram = '/bin/true'\n")
    agent = [sys.executable, "-P", "-m", "peacefs", "agent", f"--dir={directory}", f"--commands={commands}"]
    reading, writing = os.pipe()
    guard = [sys.executable, "-P", "-m", "peacefs.spark_connector.supervision.run_guard"]
    with umask(0):
        running = subprocess.Popen([*agent, f"--secret-file={secret}", "--coordinator=127.0.0.1:1"])
        try:
            wait_until((directory / "logs").is_dir, "the agent makes its directory")
        finally:
            running.kill()
            running.wait()
        log = directory / "logs" / "run.log"
        account = Account("as it is", os.getuid(), os.getgid(), None)
        start = Start([sys.executable, "-c", "print('said')"], str(place), {}, account)
        done = subprocess.run(
            [*guard, str(reading), str(log)],
            input=msgspec.json.encode(start),
            pass_fds=[reading],
            timeout=60,
            check=False,
            process_group=0,
        )
    os.close(reading)
    os.close(writing)
    assert done.returncode == 0 and log.read_text() == "said\n"
    # Queries with other accounts must reach their own files, but not list the directories above.
    readable = {path: mode for path, mode in open_to_others(directory).items() if int(mode, 8) & 0o066}
    assert readable == {}
