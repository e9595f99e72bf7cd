"""`peacefs metadata` on processes: backups during writes, a restore, and what is retained."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import FileNotFound

pytestmark = pytest.mark.cluster


def metadata(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "peacefs", "metadata", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def status(cluster: LocalCluster) -> dict[str, Any]:
    with urllib.request.urlopen(f"{cluster.http_address}/v1/status", timeout=180) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


@pytest.mark.evidence("older-backup")
def test_a_cluster_goes_on_from_a_backup_and_loses_nothing_that_datanodes_hold(tmp_path: Path) -> None:
    data = os.urandom(400_000)
    with (
        LocalCluster(tmp_path / "c", datanodes=2, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        store = cluster.directory / "coordinator"
        files.write("/before", data, replication=2)
        done = metadata("backup", "-c", cluster.http_address, tmp_path / "backup")
        assert done.returncode == 0, done.stderr
        files.write("/after", data, replication=2)
        files.write("/after-that", b"small", replication=2)
        held = status(cluster)
        assert not held["unreferenced"]["floor_held"] and held["unclaimed"] == held["unreferenced"]

        refused = metadata("restore", tmp_path / "backup", "--dir", store, "--force")
        assert refused.returncode == 1 and "in use by another coordinator" in refused.stderr
        cluster.coordinator.kill()
        refused = metadata("restore", tmp_path / "backup", "--dir", store)
        assert refused.returncode == 1 and "--force" in refused.stderr
        done = metadata("restore", tmp_path / "backup", "--dir", store, "--force")
        assert done.returncode == 0, done.stderr
        cluster.restart(cluster.coordinator)
        wait_until(lambda: bool(status(cluster)["ready"]), "the restored coordinator is ready")

        now = status(cluster)
        assert now["epoch"] > held["epoch"]
        assert now["unreferenced"]["floor_held"]
        # The chunks of /after and /after-that, each on both datanodes.
        wait_until(lambda: status(cluster)["unreferenced"]["chunks_of_earlier_epochs"] == 2, "both are seen")
        assert status(cluster)["unreferenced"]["bytes_of_earlier_epochs"] == 2 * (len(data) + len(b"small"))
        with pytest.raises(FileNotFound):
            files.read("/after")
        assert files.read("/before") == data
        files.write("/later", data, replication=2)
        assert files.read("/later") == data

        released = metadata("release-floor", "-c", cluster.http_address, "--yes")
        assert released.returncode == 0 and "this will delete 2 chunks (" in released.stderr
        assert "B with all replicas)" in released.stderr
        assert "released: they are deleted once the coordinator has run for 6 hours" in released.stderr
        assert not status(cluster)["unreferenced"]["floor_held"]
        again = metadata("release-floor", "-c", cluster.http_address)
        assert again.returncode == 0 and "nothing to release" in again.stderr


def test_backups_of_a_busy_coordinator_are_sound_and_hold_no_write_up(tmp_path: Path) -> None:
    with (
        LocalCluster(tmp_path / "c", datanodes=1, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        store = cluster.directory / "coordinator"
        stop, written = threading.Event(), 0

        def keep_writing() -> None:
            nonlocal written
            while not stop.is_set():
                files.write(f"/busy/{written}", b"x", replication=1)
                written += 1

        writer = threading.Thread(target=keep_writing)
        writer.start()
        try:
            wait_until(lambda: written > 5, "some files are written")
            before = written
            online = metadata("backup", "-c", cluster.http_address, tmp_path / "online")
            offline = metadata("backup", "--dir", store, tmp_path / "offline")
            checked = metadata("check", "--dir", store)
            wait_until(lambda: written > before + 5, "writing goes on")
        finally:
            stop.set()
            writer.join()
        for done in (online, offline, checked):
            assert done.returncode == 0, done.stderr
        assert checked.stdout.rstrip().endswith("sound")
        assert [path.name for path in store.iterdir() if "backup" in path.name] == []
        for name in ("online", "offline"):
            new = tmp_path / f"from-{name}"
            assert metadata("restore", tmp_path / name, "--dir", new).returncode == 0
            found = metadata("check", "--dir", new)
            assert found.returncode == 0, found.stdout


def test_release_asks_first_and_takes_no_for_an_answer(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "c", datanodes=1, port=0) as cluster:
        store = cluster.directory / "coordinator"
        assert metadata("backup", "--dir", store, tmp_path / "backup").returncode == 0
        cluster.coordinator.kill()
        assert metadata("restore", tmp_path / "backup", "--dir", store, "--force").returncode == 0
        cluster.restart(cluster.coordinator)
        command = [sys.executable, "-m", "peacefs", "metadata", "release-floor", "-c", cluster.http_address]
        done = subprocess.run(command, input="n\n", capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 1, done.stderr
        assert status(cluster)["unreferenced"]["floor_held"]


def test_a_damaged_store_gives_exit_status_1_and_says_what_is_wrong(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "c", datanodes=1, port=0) as cluster:
        store = cluster.directory / "coordinator"
    database = store / "metadata.sqlite"
    content = bytearray(database.read_bytes())
    content[8192:12288] = b"\xff" * 4096
    database.write_bytes(content)
    done = metadata("check", "--dir", store)
    assert done.returncode == 1 and done.stdout.startswith("WRONG pages and indexes are whole")


def test_nobody_there_is_said_in_one_line(tmp_path: Path) -> None:
    done = metadata("backup", "-c", "http://127.0.0.1:1", tmp_path / "backup")
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "no coordinator at" in done.stderr
    assert list(tmp_path.iterdir()) == []
