"""A coordinator with a full disk refuses changes, forgets nothing, and continues when there is space."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.mounts import fill, mounted
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import PeacefsError, StartupError
from peacefs.protocol.limits import MIB

pytestmark = pytest.mark.cluster


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Yield the coordinator's small disk. The datanode's is another one."""
    directory = tmp_path / "cluster"
    directory.mkdir()
    (directory / "cluster.json").write_text(json.dumps({"format": 1, "datanodes": 1}))
    with mounted(directory / "coordinator", 4 * MIB) as mount:
        yield mount


def mkdirs(cluster: LocalCluster, path: str, by: httpx.Client | None = None) -> httpx.Response:
    put = httpx.put if by is None else by.put
    return put(f"{cluster.http_address}/webhdfs/v1{path}?op=MKDIRS&user.name=ann", timeout=180)


def make_directories(cluster: LocalCluster, acknowledged: set[str], prefix: str) -> httpx.Response:
    """Make directories until one is refused; return that answer."""
    # Long names fill the disk sooner. A new connection for each directory would take a minute.
    with httpx.Client() as client:
        for number in range(5000):
            name = f"{prefix}-{number:0240}"
            answer = mkdirs(cluster, f"/made/{name}", client)
            if answer.status_code != 200:
                return answer
            acknowledged.add(name)
    raise AssertionError("a full disk takes 5000 directories")


@pytest.mark.evidence("coordinator-disk-full")
def test_a_coordinator_without_room_refuses_changes_reads_on_and_loses_nothing(disk: Path, tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    with (
        LocalCluster(tmp_path / "cluster", port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        assert cluster.coordinator.log is not None
        files.mkdirs("/made", 0o777)
        files.write("/file", b"written before")
        for turn in range(2):
            files.write_many({f"/warm-{turn}-{number}": b"x" for number in range(30)})
        failed: dict[str, PeacefsError] = {}
        others = fill(disk)
        refusal = make_directories(cluster, acknowledged, "first").json()["RemoteException"]
        assert refusal["javaClassName"] == "org.apache.hadoop.ipc.RetriableException", "stock clients ask again"
        assert "disk is full" in refusal["message"]
        assert files.read("/file") == b"written before"
        assert {entry.name for entry in files.list("/made")} == acknowledged
        waits = threading.Thread(target=files.write, args=("/made/patient", b"written when there was room"))
        waits.start()
        # Each has a chunk already. Their publications share an entry, are undone together, and are retried.
        together = {f"/made/together-{number}": b"%d" % number for number in range(30)}
        publishes = threading.Thread(target=lambda: failed.update(files.write_many(together)))
        publishes.start()
        # Its background tasks are refused, too, which must not stop it.
        status = files.cluster_status()
        assert status["datanodes"][0]["state"] == "alive"
        assert status["metadata_room_bytes"] == 0
        health = httpx.get(f"{cluster.http_address}/health/ready", timeout=180)
        assert health.status_code == 503
        assert health.json()["problems"] == ["disk full: names can be read, and nothing can be changed"]
        assert httpx.get(f"{cluster.http_address}/health/live", timeout=180).status_code == 200
        others.unlink()
        waits.join(60)
        publishes.join(60)
        assert not failed
        assert {path: files.read(path) for path in together} == together
        acknowledged.update(["patient", *(path.removeprefix("/made/") for path in together)])
        assert files.read("/made/patient") == b"written when there was room"
        assert httpx.get(f"{cluster.http_address}/health/ready", timeout=180).status_code == 200
        log = cluster.coordinator.log.read_text()
        assert (
            log.count("is full: names can be read but not changed")
            == log.count("has room again: names can be changed")
            == 1
        )

        others = fill(disk)
        make_directories(cluster, acknowledged, "second")
        cluster.coordinator.kill()
        try:
            cluster.restart(cluster.coordinator)
        except StartupError as refusal:
            refused = refusal.message
        else:
            # The log has space that was too small for the last, larger change.
            refused = make_directories(cluster, acknowledged, "third").json()["RemoteException"]["message"]
            cluster.coordinator.kill()
        assert "no room on its disk" in refused or "disk is full" in refused
        others.unlink()
        cluster.restart(cluster.coordinator)
        wait_until(lambda: files.read("/file") == b"written before", "the datanode is back")
        assert {entry.name for entry in files.list("/made")} == acknowledged
        assert mkdirs(cluster, "/made/after").status_code == 200
