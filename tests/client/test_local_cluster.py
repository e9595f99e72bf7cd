"""A local cluster starts, keeps its data, survives the death of members, and leaves no process behind."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.waiting import PATIENCE_S, wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster import cluster as local_cluster
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import StartupError
from peacefs.protocol.limits import MIB

pytestmark = pytest.mark.cluster

WaitUntil = Callable[..., None]
HasEnded = Callable[[int], bool]


@pytest.mark.fresh_processes
def test_written_files_are_there_after_the_next_start(
    tmp_path: Path, has_ended: HasEnded, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The secret of another cluster, which must not interfere.
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
    # The directory and the port are free again.
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
    """Run `peacefs up` with two datanodes, in a process of its own."""
    command = [sys.executable, "-m", "peacefs", "up", f"--dir={directory}", "--datanodes=2", "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], PATIENCE_S)[0], f"nothing was said for {PATIENCE_S} s"
    return process.stdout.readline().rstrip("\n")


def members_of(process: subprocess.Popen[str]) -> list[int]:
    """Return the processes that it has started, by their logs."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in children if log_of(pid).parent.name == "logs"]


def log_of(pid: str | int) -> Path:
    """Return the log of a process; an unnamed file if the process has ended."""
    try:
        return Path(f"/proc/{pid}/fd/1").readlink()
    except (FileNotFoundError, ProcessLookupError):
        return Path()


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


@pytest.mark.fresh_processes
def test_nothing_is_left_of_a_cluster_whose_launcher_was_killed(
    tmp_path: Path, has_ended: HasEnded, wait_until: WaitUntil
) -> None:
    with up(tmp_path / "cluster") as process:
        first_line(process)
        members = members_of(process)
        process.kill()
        process.communicate(timeout=180)
        wait_until(lambda: all(has_ended(pid) for pid in members), "the members end")


class Up:
    """A `peacefs up` that has printed its URI, with its stderr."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._unread = b""
        self.uri = first_line(process)
        assert "2 datanodes" in self.line()
        assert self.line().startswith("clients of HDFS: hdfs://")
        self.agents = self.line()

    def line(self) -> str:
        """Return the next line without the prefix that all lines have."""
        assert self.process.stderr is not None
        while b"\n" not in self._unread:
            assert select.select([self.process.stderr], [], [], PATIENCE_S)[0], f"no line within {PATIENCE_S} s"
            piece = os.read(self.process.stderr.fileno(), 4096)
            assert piece, f"it ended after {self._unread!r}"
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode().removeprefix("peacefs: up: ")

    def pid_of(self, member: str) -> int:
        """Return the process that writes this member's log; None while the member is being started."""
        return next((pid for pid in members_of(self.process) if log_of(pid).stem == member), 0)


def test_up_starts_what_was_killed_again_and_goes_on_at_the_same_addresses(
    tmp_path: Path, has_ended: HasEnded, wait_until: WaitUntil
) -> None:
    with up(tmp_path / "cluster") as process:
        cluster = Up(process)
        with PeaceFileSystem(cluster.uri) as files:
            files.write("/before", b"data", replication=2)
            killed = cluster.pid_of("datanode-1")
            os.kill(killed, signal.SIGKILL)
            assert cluster.line() == "datanode-1 was killed by SIGKILL; it is started again"
            assert cluster.line() == "datanode-1 is back"
            assert cluster.pid_of("datanode-1") not in (0, killed)
            os.kill(cluster.pid_of("coordinator"), signal.SIGKILL)
            assert cluster.line() == "coordinator was killed by SIGKILL; it is started again"
            assert cluster.line() == "coordinator is back"
            assert files.read("/before") == b"data"
            files.write("/after", b"more", replication=2)
        members = members_of(process)
        assert len(members) == 3
        process.send_signal(signal.SIGTERM)
        _rest, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said.splitlines()) == (0, ["stopping"])
    assert all(has_ended(pid) for pid in members)


def test_up_says_a_fault_that_repeats_itself_once_and_recovers_when_it_is_mended(tmp_path: Path) -> None:
    with up(tmp_path / "cluster") as process:
        cluster = Up(process)
        node = tmp_path / "cluster" / "datanode-2"
        away = node.with_name("away")
        node.rename(away)
        node.write_text("a file where its directory was")
        os.kill(cluster.pid_of("datanode-2"), signal.SIGKILL)
        assert cluster.line() == "datanode-2 was killed by SIGKILL; it is started again"
        assert cluster.line().startswith("datanode-2 did not start: ")
        log = tmp_path / "cluster" / "logs" / "datanode-2.log"
        before = log.stat().st_ino
        wait_until(lambda: _inode_of(log) not in (None, before), "a further attempt")
        with PeaceFileSystem(cluster.uri) as files:
            files.write("/meanwhile", b"data", replication=1)
        node.unlink()
        away.rename(node)
        # Further attempts were not reported.
        assert cluster.line() == "datanode-2 is back"


def _inode_of(log: Path) -> int | None:
    """Return the inode of a log; None between its renaming and the creation of the next log."""
    with contextlib.suppress(FileNotFoundError):
        return log.stat().st_ino
    return None


def test_up_that_is_told_to_stop_while_a_member_is_away_stops_cleanly(tmp_path: Path, has_ended: HasEnded) -> None:
    with up(tmp_path / "cluster") as process:
        cluster = Up(process)
        members = members_of(process)
        os.kill(cluster.pid_of("coordinator"), signal.SIGKILL)
        assert cluster.line().startswith("coordinator was killed by SIGKILL")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert all(has_ended(pid) for pid in members)


def test_up_shows_agents_the_same_port_and_secret_at_each_start(tmp_path: Path) -> None:
    shown = []
    for _ in range(2):
        with up(tmp_path / "cluster") as process:
            shown.append(Up(process).agents)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE_S)
    assert shown[0] == shown[1]
    options = dict(zip(shown[0].split()[1::2], shown[0].split()[2::2], strict=True))
    assert options["--coordinator"].startswith("127.0.0.1:")
    assert Path(options["--secret-file"]) == tmp_path / "cluster" / "coordinator" / "cluster.secret"
    assert Path(options["--secret-file"]).is_file()


def test_up_whose_port_for_agents_is_taken_says_so_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "peacefs", "up", f"--dir={tmp_path / 'c'}", "--port=0"]
        done = subprocess.run(
            [*command, f"--node-port={port}"], capture_output=True, text=True, timeout=PATIENCE_S
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(rf"peacefs: up: coordinator did not start: .*{port}.*\n", done.stderr)
