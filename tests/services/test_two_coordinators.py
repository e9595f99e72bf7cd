"""Two coordinators and one directory: at no time do both acknowledge changes."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.services import start_service
from support.waiting import wait_until

pytestmark = pytest.mark.cluster
_TIMEOUT_S = 180
_STOPPED_FOR_ITS_DISK = 74
Started = tuple["subprocess.Popen[bytes]", str]


def start(directory: Path) -> Started:
    process, said = start_service("coordinator", f"--dir={directory}", "--port=0", "--node-port=0")
    return process, f"http://127.0.0.1:{said['http_port']}"


def complaint(directory: Path) -> str:
    """Return the last line of a coordinator that does not start."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "peacefs",
        "coordinator",
        f"--dir={directory}",
        "--port=0",
        "--node-port=0",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert done.returncode == 1, done.stderr
    return done.stderr.strip().splitlines()[-1]


def mkdirs(address: str, name: str) -> bool:
    """Make a directory and return whether it was acknowledged."""
    with contextlib.suppress(httpx.HTTPError):
        url = f"{address}/webhdfs/v1/{name}?op=MKDIRS&user.name={getpass.getuser()}"
        return httpx.put(url, timeout=120).status_code == 200
    return False


def names(address: str) -> set[str]:
    listed = httpx.get(f"{address}/webhdfs/v1/?op=LISTSTATUS&user.name=ann", timeout=120).json()
    return {entry["pathSuffix"] for entry in listed["FileStatuses"]["FileStatus"]}


@contextlib.contextmanager
def running(directory: Path) -> Iterator[Started]:
    """Yield a coordinator; kill it at the end unless it has ended."""
    process, address = start(directory)
    try:
        yield process, address
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "coordinator"


@pytest.fixture
def first(directory: Path) -> Iterator[Started]:
    with running(directory) as (process, address):
        assert mkdirs(address, "before")
        yield process, address


def assert_stops_by_itself(started: Started) -> None:
    process, address = started
    assert not mkdirs(address, "after")
    assert process.wait(_TIMEOUT_S) == _STOPPED_FOR_ITS_DISK


@pytest.mark.evidence("files-taken-away")
def test_second_coordinator_is_refused_when_the_lock_file_is_gone(directory: Path, first: Started) -> None:
    (directory / "metadata.sqlite.lock").unlink()
    assert "in use by another coordinator" in complaint(directory)
    assert mkdirs(first[1], "after")


@pytest.mark.evidence("files-taken-away")
def test_second_coordinator_is_refused_on_the_renamed_directory_and_the_first_stops(
    directory: Path, first: Started
) -> None:
    moved = directory.rename(directory.with_name("moved"))
    assert_stops_by_itself(first)
    # An unacknowledged change may have taken effect.
    with running(moved) as (_process, address):
        assert names(address) - {"after"} == {"before"}


@pytest.mark.evidence("files-taken-away")
def test_second_coordinator_in_the_first_one_s_place_follows_its_end(directory: Path, first: Started) -> None:
    """A copy of the directory replaces it while the first one runs, which then serves no more requests."""
    moved = directory.rename(directory.with_name("moved"))
    # A socket cannot be copied.
    shutil.copytree(moved, directory, ignore=shutil.ignore_patterns("admin"))
    with running(directory) as (_process, address):
        assert mkdirs(address, "of-the-second")
        assert_stops_by_itself(first)
        assert "of-the-second" in names(address)


@pytest.mark.evidence("files-taken-away")
def test_coordinator_that_nobody_asks_anything_notices_that_its_database_was_replaced(
    directory: Path, first: Started
) -> None:
    store = directory / "metadata.sqlite"
    shutil.copy(store, directory / "copy")
    (directory / "copy").replace(store)
    assert first[0].wait(_TIMEOUT_S) == _STOPPED_FOR_ITS_DISK


@pytest.mark.evidence("files-taken-away")
def test_coordinator_whose_log_is_deleted_stops_and_has_lost_nothing(directory: Path, first: Started) -> None:
    acknowledged = {"before"} | {f"{number}" for number in range(20) if mkdirs(first[1], str(number))}
    assert len(acknowledged) == 21
    (directory / "metadata.sqlite-wal").unlink()
    assert_stops_by_itself(first)
    with running(directory) as (_process, address):
        assert names(address) - {"after"} == acknowledged


@pytest.mark.evidence("files-taken-away")
def test_coordinator_notices_what_is_mounted_over_its_directory(directory: Path, first: Started) -> None:
    other = directory.with_name("other")
    other.mkdir()
    made = subprocess.run(["mount", "--bind", str(other), str(directory)], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"nothing can be mounted here: {made.stderr.strip()}")
    try:
        assert_stops_by_itself(first)
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def test_second_coordinator_is_refused_where_the_directory_is_mounted_a_second_time(
    directory: Path, first: Started
) -> None:
    other = directory.with_name("other")
    other.mkdir()
    made = subprocess.run(["mount", "--bind", str(directory), str(other)], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"nothing can be mounted here: {made.stderr.strip()}")
    try:
        (directory / "metadata.sqlite.lock").unlink()
        assert "in use by another coordinator" in complaint(other)
        assert mkdirs(first[1], "after")
    finally:
        subprocess.run(["umount", "--lazy", str(other)], check=True)


def test_second_coordinator_is_refused_through_a_link_to_the_database(directory: Path, first: Started) -> None:
    other = directory.with_name("other")
    other.mkdir(mode=0o700)
    os.link(directory / "metadata.sqlite", other / "metadata.sqlite")
    assert "in use by another coordinator" in complaint(other)
    wait_until(lambda: mkdirs(first[1], "after"), "the first goes on")
