"""A local cluster starts, keeps what was written, survives its members, and leaves no process behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster import cluster as local_cluster
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import StartupError
from peacefs.protocol.limits import MIB

pytestmark = pytest.mark.cluster

WaitUntil = Callable[..., None]
HasEnded = Callable[[int], bool]


def test_written_files_are_there_after_the_next_start(
    tmp_path: Path, has_ended: HasEnded, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The secret of some other cluster; it must not get in the way.
    monkeypatch.setenv("PEACEFS_SECRET_FILE", str(tmp_path / "nowhere"))
    contents = {f"/job/{number}": os.urandom(number * 70_000) for number in range(4)}
    with LocalCluster(tmp_path / "c", datanodes=2, port=0) as cluster:
        with PeaceFileSystem(cluster.webhdfs_uri) as files:
            for path, data in contents.items():
                files.write(path, data, replication=2)
        pids = [member.pid for member in cluster.members]
    assert all(has_ended(pid) for pid in pids)
    cluster.stop()
    with LocalCluster(tmp_path / "c", port=0) as cluster, PeaceFileSystem(cluster.http_address) as files:
        assert len(cluster.datanodes) == 2
        assert {path: files.read(path) for path in contents} == contents


def test_a_port_in_use_is_said_in_one_line_and_nothing_stays(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cluster = LocalCluster(tmp_path, datanodes=1, port=port)
        with pytest.raises(StartupError, match=rf"coordinator did not start: .*{port}.*[Aa]ddress already in use"):
            cluster.start()
    # The directory is free again, and so is the port.
    with LocalCluster(tmp_path, datanodes=1, port=port) as cluster:
        assert cluster.http_address == f"http://127.0.0.1:{port}"


def test_a_foreign_directory_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("dear")
    with pytest.raises(StartupError, match="holds files but no local cluster"):
        LocalCluster(tmp_path, port=0).start()
    assert [path.name for path in tmp_path.iterdir()] == ["letter"]


def test_reads_and_writes_go_on_without_a_datanode_and_it_comes_back_with_its_ports(
    tmp_path: Path, wait_until: WaitUntil
) -> None:
    data = os.urandom(3 * MIB)
    with LocalCluster(tmp_path, datanodes=3, port=0) as cluster, PeaceFileSystem(cluster.http_address) as files:
        files.write("/before", data)
        victim = cluster.datanodes[0]
        before = victim.readiness
        victim.kill()
        assert not victim.alive
        assert files.read("/before") == data
        files.write("/after", data)
        assert files.read("/after") == data
        cluster.restart(victim)
        after = victim.readiness
        assert (after.node, after.http_port, after.data_port) == (before.node, before.http_port, before.data_port)
        assert after.pid != before.pid
        for survivor in cluster.datanodes[1:]:
            survivor.kill()
        assert files.read("/before") == data


def test_a_client_waits_for_a_coordinator_that_was_killed_and_comes_back(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, datanodes=1, port=0) as cluster, PeaceFileSystem(cluster.http_address) as files:
        files.write("/acknowledged", b"data", replication=1)
        cluster.coordinator.kill()
        restart = threading.Thread(target=cluster.restart, args=(cluster.coordinator,))
        restart.start()
        assert files.read("/acknowledged") == b"data"
        files.write("/later", b"more", replication=1)
        restart.join()


def test_a_member_that_does_not_listen_is_killed_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_ended: HasEnded
) -> None:
    monkeypatch.setattr(local_cluster, "local_stop_timeout_s", 0.5)
    cluster = LocalCluster(tmp_path, datanodes=1, port=0).start()
    pid = cluster.datanodes[0].pid
    os.kill(pid, signal.SIGSTOP)
    cluster.stop()
    assert has_ended(pid)


@contextlib.contextmanager
def up(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """`peacefs up` with two datanodes, in a process of its own."""
    command = [sys.executable, "-m", "peacefs", "up", f"--dir={directory}", "--datanodes=2", "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 30)[0], "nothing was said for 30 s"
    return process.stdout.readline().rstrip("\n")


def members_of(process: subprocess.Popen[str]) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_up_prints_the_uri_and_stops_cleanly_when_told_to(
    tmp_path: Path, has_ended: HasEnded, ending: signal.Signals
) -> None:
    with up(tmp_path / "cluster") as process:
        uri = first_line(process)
        with PeaceFileSystem(uri) as files:
            files.write("/file", b"data", replication=2)
        members = members_of(process)
        assert len(members) == 3
        process.send_signal(ending)
        rest, said = process.communicate(timeout=180)
    assert (process.returncode, rest) == (0, "")
    assert said.splitlines()[-1] == "stopping"
    assert all(has_ended(pid) for pid in members)


def test_nothing_is_left_of_a_cluster_whose_launcher_was_killed(
    tmp_path: Path, has_ended: HasEnded, wait_until: WaitUntil
) -> None:
    with up(tmp_path / "cluster") as process:
        first_line(process)
        members = members_of(process)
        process.kill()
        process.communicate(timeout=180)
        wait_until(lambda: all(has_ended(pid) for pid in members), "the members end")


def test_up_reports_a_dead_datanode_and_ends_with_the_coordinator(tmp_path: Path, has_ended: HasEnded) -> None:
    with up(tmp_path / "cluster") as process:
        first_line(process)
        coordinator, datanode, survivor = members_of(process)
        assert process.stderr is not None
        assert "2 datanodes" in process.stderr.readline()
        os.kill(datanode, signal.SIGKILL)
        reported = process.stderr.readline()
        assert reported.startswith("peacefs: up: datanode-1 was killed by SIGKILL")
        assert process.poll() is None
        os.kill(coordinator, signal.SIGKILL)
        _rest, said = process.communicate(timeout=180)
    assert process.returncode == 1
    assert said.startswith("peacefs: up: the coordinator was killed by SIGKILL")
    assert has_ended(survivor)
