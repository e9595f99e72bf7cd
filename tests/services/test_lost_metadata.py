"""Coordinators whose metadata lost its end refuse to serve."""

from __future__ import annotations

import json
import random
import shutil
import struct
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import StartupError

pytestmark = pytest.mark.cluster
_DATA = bytes(range(256)) * 2000


def metadata(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "peacefs", "metadata", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def status(cluster: LocalCluster) -> dict[str, Any]:
    with urllib.request.urlopen(f"{cluster.http_address}/v1/status", timeout=120) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def last_segment(directory: Path) -> Path:
    """Return the last segment of the log, to which a coordinator appends since its start."""
    return max(directory.glob("metadata.sqlite.log-*"))


def written_bytes(log: bytes) -> list[int]:
    """Return the offsets of a segment's data: new segments are filled with zeros."""
    return [at for at, byte in enumerate(log) if byte]


def commit_heard(cluster: LocalCluster) -> int:
    """Return the last commit that the datanode remembers."""
    path = cluster.directory / "datanode-1" / "commit.seen"
    return int(struct.unpack(">QI", path.read_bytes())[0]) if path.exists() else 0


@pytest.mark.evidence("commits-lost")
def test_commits_lost_from_the_log_keep_the_coordinator_from_starting_until_that_is_accepted(
    tmp_path: Path,
) -> None:
    randomly = random.Random(1)
    with (
        LocalCluster(tmp_path / "c", datanodes=1, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        store = cluster.directory / "coordinator"
        files.write("/kept", _DATA, replication=1)
        for number in range(12):
            files.write(f"/lost-{number}", _DATA, replication=1)
        cluster.coordinator.kill()
        log = last_segment(store)
        whole = log.read_bytes()
        written_at = written_bytes(whole)
        image = {path.name: path.read_bytes() for path in store.iterdir() if path.is_file()}
        damages = [whole[: randomly.choice(written_at)], b""]
        for _ in range(2):
            flipped = bytearray(whole)
            flipped[randomly.choice(written_at)] ^= 1 << randomly.randrange(8)
            damages.append(bytes(flipped))
        for damaged in damages:
            log.write_bytes(damaged)
            with pytest.raises(StartupError, match="has lost changes that were acknowledged"):
                cluster.restart(cluster.coordinator)
        # Apart from the damage, everything starts as after any kill.
        for name, content in image.items():
            (store / name).write_bytes(content)
        cluster.restart(cluster.coordinator)
        assert files.read("/lost-11") == _DATA
        written = files.list("/")
        cluster.coordinator.kill()

        for segment in store.glob("metadata.sqlite.log-*"):
            segment.unlink()
        shutil.copy(log_free(image, tmp_path), store / "metadata.sqlite")
        with pytest.raises(StartupError, match="accept-loss --dir"):
            cluster.restart(cluster.coordinator)
        done = metadata("accept-loss", "--dir", store, "--yes")
        assert done.returncode == 0 and "accepted" in done.stderr, done.stderr
        cluster.restart(cluster.coordinator)
        wait_until(lambda: bool(status(cluster)["ready"]), "the coordinator is ready")
        now = status(cluster)
        assert now["unreferenced"]["floor_held"] and not now["commits_missing"]
        assert len(files.list("/")) < len(written)
        # The data of the lost files is still there.
        wait_until(lambda: status(cluster)["unreferenced"]["chunks_of_earlier_epochs"] > 0, "they are reported")
        files.write("/new", _DATA, replication=1)
        assert files.read("/new") == _DATA


def log_free(image: dict[str, bytes], directory: Path) -> Path:
    """Return the store as it was before it had a log."""
    path = directory / "without-its-log"
    path.write_bytes(image["metadata.sqlite"])
    return path


@pytest.mark.evidence("directory-put-back")
@pytest.mark.long("several starts")
def test_commits_that_only_datanodes_remember_stop_all_changes_until_that_is_accepted(tmp_path: Path) -> None:
    """The directory and its record were replaced by an old copy, so nothing in it shows the later commits."""
    with (
        LocalCluster(tmp_path / "c", datanodes=1, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        store = cluster.directory / "coordinator"
        files.write("/before", _DATA, replication=1)
        cluster.coordinator.kill()
        older = {path.name: path.read_bytes() for path in store.iterdir() if path.is_file()}
        cluster.restart(cluster.coordinator)
        wait_until(lambda: bool(status(cluster)["ready"]), "the coordinator is ready")
        files.write("/after", _DATA, replication=1)
        heard = commit_heard(cluster)
        files.write("/after-that", _DATA, replication=1)
        wait_until(lambda: commit_heard(cluster) > heard, "the datanode hears of it")
        cluster.coordinator.kill()
        for path in store.iterdir():
            if path.is_file():
                path.unlink()
        for name, content in older.items():
            (store / name).write_bytes(content)

        cluster.restart(cluster.coordinator)
        wait_until(lambda: bool(status(cluster)["commits_missing"]), "the datanode has told of it")
        assert status(cluster)["unreferenced"]["floor_held"]
        wait_until(lambda: bool(status(cluster)["ready"]), "the coordinator is ready")
        assert files.read("/before") == _DATA
        assert "accept-loss" in refusal(cluster, "/new")
        # A restart does not forget that.
        cluster.coordinator.kill()
        cluster.restart(cluster.coordinator)
        assert status(cluster)["commits_missing"]
        assert metadata("release-floor", "-c", cluster.http_address, "--yes").returncode == 1
        done = metadata("accept-loss", "-c", cluster.http_address, "--yes")
        assert done.returncode == 0 and "accepted" in done.stderr, done.stderr
        now = status(cluster)
        assert now["unreferenced"]["floor_held"] and not now["commits_missing"]
        wait_until(lambda: bool(status(cluster)["ready"]), "the coordinator is ready")
        files.write("/new", _DATA, replication=1)
        cluster.coordinator.kill()
        cluster.restart(cluster.coordinator)
        wait_until(lambda: bool(status(cluster)["ready"]), "the coordinator is ready")
        assert not status(cluster)["commits_missing"]


def refusal(cluster: LocalCluster, path: str) -> str:
    """Request a directory once; return the coordinator's objection."""
    answer = httpx.put(f"{cluster.http_address}/webhdfs/v1{path}?op=MKDIRS&user.name=ann", timeout=120)
    assert answer.status_code == 403, answer.text
    return str(answer.json()["RemoteException"]["message"])
