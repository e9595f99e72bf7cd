"""Files are written on a mount while the leading coordinator is killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.failover_cluster import failover_cluster
from support.mounted_tree import mounted, require_fuse
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem

pytestmark = pytest.mark.cluster
MIB = 1 << 20


def test_writes_of_a_mount_go_on_with_the_next_leader(tmp_path: Path) -> None:
    require_fuse()
    with failover_cluster(tmp_path, members=1) as cluster:
        address = ",".join(cluster.http)
        with (
            mounted(address, tmp_path / "peace", user=PeaceFileSystem(address).user) as mount,
            PeaceFileSystem(address) as files,
        ):
            streamed = os.open(mount.directory / "streamed", os.O_WRONLY | os.O_CREAT)
            staged = os.open(mount.directory / "staged", os.O_RDWR | os.O_CREAT)
            log = os.open(mount.directory / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(log, b"one\n")
            os.fsync(log)
            for _ in range(12):
                os.write(streamed, b"x" * MIB)
            os.pwrite(staged, b"end", 100_000)
            os.pwrite(staged, b"start", 0)
            cluster.coordinators[0].kill()
            os.write(log, b"two\n")
            os.fsync(log)
            for _ in range(12):
                os.write(streamed, b"y" * MIB)
            assert (mount.directory / "log").read_bytes() == b"one\ntwo\n"
            for descriptor in (streamed, staged, log):
                os.close(descriptor)
            wait_until(lambda: cluster.leads(1), "the other coordinator leads")
            assert sorted(path.name for path in mount.directory.iterdir()) == ["log", "staged", "streamed"]
            assert files.read("/streamed") == b"x" * 12 * MIB + b"y" * 12 * MIB
            assert files.read("/staged") == b"start" + bytes(99_995) + b"end"
            assert files.read("/log") == b"one\ntwo\n"
