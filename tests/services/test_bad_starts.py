"""Services that cannot start say in one line why and what to do, and change nothing."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.etcd import free_ports
from support.mounts import fill, mounted

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.client.local_cluster.trial_certificates import TrialAuthority
from peacefs.protocol.limits import MIB

pytestmark = pytest.mark.cluster
_TIMEOUT_S = 180
#: Runs a command, and reports the threads that remain.
_THREADS_AFTERWARDS = """
import sys, threading
from peacefs.start import main
try:
    main()
except SystemExit as ended:
    assert ended.code == 1
print([thread.name for thread in threading.enumerate()], file=sys.stderr)
"""


def peacefs(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "peacefs", *arguments]


def complaint(*arguments: str) -> str:
    """Return the last line of a command that must fail; fail on a traceback."""
    environment = {**os.environ}
    for variable in ("PEACEFS_SECRET_FILE", "PEACEFS_TLS_CERTIFICATE", "PEACEFS_TLS_KEY", "PEACEFS_TLS_CA"):
        environment.pop(variable, None)
    done = subprocess.run(peacefs(*arguments), capture_output=True, text=True, timeout=_TIMEOUT_S, env=environment)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


class Coordinator:
    """A coordinator as a process."""

    def __init__(self, directory: Path, *options: str) -> None:
        ready, theirs = os.pipe()
        arguments = ["coordinator", f"--dir={directory}", "--port=0", "--node-port=0", f"--ready-fd={theirs}"]
        self.log = directory.with_suffix(".log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(peacefs(*arguments, *options), stderr=log, pass_fds=[theirs])
        os.close(theirs)
        with os.fdopen(ready) as pipe:
            line = pipe.readline()
        if not line:
            self.process.wait(_TIMEOUT_S)
        assert line, self.log.read_text()
        self.said: dict[str, Any] = json.loads(line)
        self.secret = directory / "cluster.secret"

    @property
    def node_address(self) -> str:
        return f"127.0.0.1:{self.said['node_port']}"

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_TIMEOUT_S)


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    running = Coordinator(tmp_path / "coordinator")
    yield running
    assert running.stop() == 0


def datanode(directory: Path, coordinator: str, secret: Path, *options: str) -> list[str]:
    ports = ("--port=0", "--data-port=0")
    return [
        "datanode",
        f"--dir={directory}",
        f"--coordinator={coordinator}",
        f"--secret-file={secret}",
        *ports,
        *options,
    ]


class TestCoordinator:
    def test_a_port_in_use(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            said = complaint("coordinator", f"--dir={tmp_path / 'c'}", f"--port={port}", "--node-port=0")
            assert f"port {port}" in said and "in use" in said
            said = complaint("coordinator", f"--dir={tmp_path / 'c'}", "--port=0", f"--node-port={port}")
            assert f"port {port}" in said and "in use" in said

    def test_port_in_use_ends_the_writer_of_metadata_before_they_are_closed(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            arguments = ["coordinator", f"--dir={tmp_path / 'c'}", "--port=0", f"--node-port={port}"]
            done = subprocess.run(
                [sys.executable, "-P", "-c", _THREADS_AFTERWARDS, *arguments],
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
            )
        assert f"port {port}" in done.stderr and "Traceback" not in done.stderr
        assert done.stderr.splitlines()[-1] == "['MainThread']"

    def test_an_address_for_others_without_a_secret(self, tmp_path: Path) -> None:
        said = complaint("coordinator", f"--dir={tmp_path / 'c'}", "--host=0.0.0.0", "--port=0", "--node-port=0")
        assert "--secret-file" in said
        assert not (tmp_path / "c").exists()

    def test_tls_is_wanted_of_an_address_for_others_unless_it_is_said_otherwise(self, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.write_text("x" * 40)
        secret.chmod(0o600)
        directory = f"--dir={tmp_path / 'c'}"
        for address in ("--host=0.0.0.0", "--advertise=node-1"):
            said = complaint(
                "coordinator", directory, address, f"--secret-file={secret}", "--port=0", "--node-port=0"
            )
            assert "is reachable from other machines: pass --tls-certificate" in said and "--no-tls" in said
            assert not (tmp_path / "c").exists()
        running = Coordinator(tmp_path / "c", "--advertise=node-1", f"--secret-file={secret}", "--no-tls")
        assert running.stop() == 0
        assert "no TLS, as --no-tls has it" in running.log.read_text()
        running = Coordinator(tmp_path / "c", f"--secret-file={secret}")
        assert running.stop() == 0
        assert "no TLS: this machine only" in running.log.read_text()

    def test_tls_files_that_are_not_all_there_or_not_for_this_address(self, tmp_path: Path) -> None:
        files = TrialAuthority(tmp_path / "ca").issue(["node-1"])
        options = [f"--tls-certificate={files.certificate}", f"--tls-key={files.key}", f"--tls-ca={files.ca}"]
        start = ("coordinator", f"--dir={tmp_path / 'c'}", "--port=0", "--node-port=0")
        assert complaint(*start, *options[:2]).endswith("--tls-ca is missing")
        assert "contradicts" in complaint(*start, *options, "--no-tls")
        assert "is not for node-2, as others reach" in complaint(*start, *options, "--advertise=node-2")
        assert not (tmp_path / "c").exists()

    def test_a_secret_that_is_no_secret(self, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        said = complaint("coordinator", f"--dir={tmp_path / 'c'}", f"--secret-file={secret}", "--port=0")
        assert "No such file" in said
        for content in ("", "short"):
            secret.write_text(content)
            said = complaint("coordinator", f"--dir={tmp_path / 'c'}", f"--secret-file={secret}", "--port=0")
            assert "32 characters" in said
        said = complaint("coordinator", f"--dir={tmp_path / 'c'}", f"--secret-file={tmp_path}", "--port=0")
        assert "Is a directory" in said

    def test_a_secret_that_others_can_read_is_warned_of(self, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.write_text("x" * 40)
        for mode, warnings in ((0o644, 1), (0o600, 0)):
            secret.chmod(mode)
            running = Coordinator(tmp_path / "c", f"--secret-file={secret}")
            assert running.stop() == 0
            assert running.log.read_text().count("can read the cluster secret") == warnings

    def test_a_secret_whose_making_was_cut_short_is_made_anew(self, tmp_path: Path) -> None:
        (tmp_path / "c").mkdir()
        (tmp_path / "c" / "cluster.secret.new").touch()
        running = Coordinator(tmp_path / "c")
        assert running.stop() == 0
        assert [path.name for path in (tmp_path / "c").glob("cluster.secret*")] == ["cluster.secret"]
        assert running.secret.stat().st_mode & 0o777 == 0o600

    def test_a_full_disk_at_the_first_start_leaves_nothing_in_the_way_of_the_next(self, tmp_path: Path) -> None:
        with mounted(tmp_path / "disk", 4 * MIB) as disk:
            directory, others = disk / "c", fill(disk)
            said = complaint("coordinator", "--port=0", "--node-port=0", f"--dir={directory}")
            assert "No space left" in said or "disk is full" in said or "there is no room on its disk" in said
            others.unlink()
            assert Coordinator(directory).stop() == 0

    def test_a_directory_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("in the way")
        assert str(tmp_path / "file") in complaint("coordinator", f"--dir={tmp_path / 'file'}", "--port=0")

    def test_a_second_coordinator_on_one_directory(self, coordinator: Coordinator, tmp_path: Path) -> None:
        said = complaint("coordinator", f"--dir={tmp_path / 'coordinator'}", "--port=0", "--node-port=0")
        assert "in use" in said or "another" in said

    @pytest.mark.parametrize("damage", ["truncated", "overwritten", "not a database"])
    @pytest.mark.evidence("database-damaged")
    def test_a_damaged_database_is_refused_and_left_as_it_is(self, tmp_path: Path, damage: str) -> None:
        directory = tmp_path / "coordinator"
        assert Coordinator(directory).stop() == 0
        database = directory / "metadata.sqlite"
        content = database.read_bytes()
        match damage:
            case "truncated":
                content = content[: len(content) // 2]
            case "overwritten":
                content = content[:4096] + b"\xff" * 4096 + content[8192:]
            case _:
                content = b"these are my notes, not a database\n" * 200
        database.write_bytes(content)
        said = complaint("coordinator", f"--dir={directory}", "--port=0", "--node-port=0")
        assert str(database) in said
        assert database.read_bytes() == content


class TestDatanode:
    def test_no_secret(self, tmp_path: Path) -> None:
        said = complaint("datanode", f"--dir={tmp_path / 'd'}", "--port=0", "--data-port=0")
        assert "--secret-file" in said and "PEACEFS_SECRET_FILE" in said

    def test_tls_is_wanted_of_an_address_for_others_and_for_a_coordinator_elsewhere(
        self, coordinator: Coordinator, tmp_path: Path
    ) -> None:
        here, secret = coordinator.node_address, coordinator.secret
        for command in (
            datanode(tmp_path / "d", here, secret, "--advertise=node-1"),
            datanode(tmp_path / "d", "coordinator-1:9820", secret),
        ):
            said = complaint(*command)
            assert "is reachable from other machines: pass --tls-certificate" in said and "--no-tls" in said
        assert not (tmp_path / "d").exists()

    def test_tls_datanode_of_a_plain_coordinator(self, coordinator: Coordinator, tmp_path: Path) -> None:
        files = TrialAuthority(tmp_path / "ca").issue(["127.0.0.1"])
        options = [f"--tls-certificate={files.certificate}", f"--tls-key={files.key}", f"--tls-ca={files.ca}"]
        said = complaint(*datanode(tmp_path / "d", coordinator.node_address, coordinator.secret, *options))
        assert "the coordinator does not speak TLS" in said
        assert "the peer speaks TLS and this service does not" in coordinator.log.read_text()

    def test_the_wrong_secret(self, coordinator: Coordinator, tmp_path: Path) -> None:
        wrong = tmp_path / "wrong"
        wrong.write_text("x" * 40)
        said = complaint(*datanode(tmp_path / "d", coordinator.node_address, wrong))
        assert said.startswith(
            "peacefs: datanode: the coordinator refuses this datanode: a new datanode does not know"
        )
        assert said.endswith("give it the same --secret-file")
        assert not (tmp_path / "d").exists()

    @pytest.mark.evidence("foreign-directory")
    def test_a_directory_of_another_cluster(self, coordinator: Coordinator, tmp_path: Path) -> None:
        with LocalCluster(tmp_path / "theirs", datanodes=1, port=0):
            pass
        theirs = tmp_path / "theirs" / "datanode-1"
        said = complaint(*datanode(theirs, coordinator.node_address, coordinator.secret))
        assert "cluster" in said

    @pytest.mark.evidence("started-twice", "copied-directory")
    def test_a_directory_that_another_datanode_has_and_a_copy_of_it(self, tmp_path: Path) -> None:
        with LocalCluster(tmp_path / "cluster", datanodes=1, port=0) as cluster:
            first = cluster.datanodes[0]
            ready = cluster.coordinator.readiness
            address = f"{ready.node_host}:{ready.node_port}"
            secret = tmp_path / "cluster" / "coordinator" / "cluster.secret"
            theirs = tmp_path / "cluster" / "datanode-1"
            said = complaint(*datanode(theirs, address, secret))
            assert f"another datanode is using {theirs}" in said

            shutil.copytree(theirs, tmp_path / "copy")
            log = tmp_path / "copy.log"
            with log.open("w") as stream:
                command = peacefs(*datanode(tmp_path / "copy", address, secret))
                second = subprocess.Popen(command, stderr=stream)
            try:
                _wait_for(log, f"has the id {first.node}, too")
                _wait_for(log, "copy of another datanode's")
            finally:
                second.send_signal(signal.SIGTERM)
                assert second.wait(_TIMEOUT_S) == 0
            with PeaceFileSystem(cluster.http_address) as files:
                files.write("/f", b"the first goes on", replication=1)
                assert files.read("/f") == b"the first goes on"

    def test_a_directory_that_is_not_ours(self, coordinator: Coordinator, tmp_path: Path) -> None:
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "thesis.tex").write_text("precious")
        said = complaint(*datanode(tmp_path / "d", coordinator.node_address, coordinator.secret))
        assert str(tmp_path / "d") in said
        assert [path.name for path in (tmp_path / "d").iterdir()] == ["thesis.tex"]

    def test_a_port_in_use(self, coordinator: Coordinator, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for option in (f"--port={port}", f"--data-port={port}"):
                said = complaint(*datanode(tmp_path / "d", coordinator.node_address, coordinator.secret, option))
                assert str(port) in said and "in use" in said

    def test_a_coordinator_that_is_not_there_yet_is_waited_for(self, tmp_path: Path) -> None:
        (port,) = free_ports(1)
        first = Coordinator(tmp_path / "coordinator", f"--node-port={port}")
        address, secret = first.node_address, first.secret
        assert first.stop() == 0
        log = tmp_path / "datanode.log"
        with log.open("w") as stream:
            waiting = subprocess.Popen(peacefs(*datanode(tmp_path / "d", address, secret)), stderr=stream)
        try:
            _wait_for(log, "trying again")
            second = Coordinator(tmp_path / "coordinator", f"--node-port={port}")
            try:
                _wait_for(log, "registered with the coordinator")
            finally:
                second.stop()
        finally:
            waiting.send_signal(signal.SIGTERM)
            assert waiting.wait(_TIMEOUT_S) == 0

    @pytest.mark.evidence("disk-full")
    def test_a_disk_without_room_takes_nothing_and_says_so(self, coordinator: Coordinator, tmp_path: Path) -> None:
        ready, theirs = os.pipe()
        arguments = datanode(
            tmp_path / "d",
            coordinator.node_address,
            coordinator.secret,
            f"--reserved-bytes={1 << 60}",
            f"--ready-fd={theirs}",
        )
        log = tmp_path / "datanode.log"
        with log.open("w") as stream:
            full = subprocess.Popen(peacefs(*arguments), stderr=stream, pass_fds=[theirs])
        os.close(theirs)
        try:
            with os.fdopen(ready) as pipe:
                assert pipe.readline(), log.read_text()
            url = f"http://127.0.0.1:{coordinator.said['http_port']}"
            answer = httpx.put(f"{url}/webhdfs/v1/f?op=CREATE&user.name={getpass.getuser()}")
            assert answer.status_code == 403
            assert "no datanode can take a chunk" in answer.json()["RemoteException"]["message"]
        finally:
            full.send_signal(signal.SIGTERM)
            assert full.wait(_TIMEOUT_S) == 0


def _wait_for(log: Path, words: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while words not in log.read_text():
        assert time.monotonic() < deadline, f"{words!r} is not in: {log.read_text()}"
        time.sleep(0.05)


class TestAgent:
    def test_tls_is_wanted_for_a_coordinator_elsewhere(self, coordinator: Coordinator, tmp_path: Path) -> None:
        (tmp_path / "list.toml").write_text('[commands.nap]\nprogram = "/bin/sleep"\n')
        said = complaint(
            "agent",
            f"--dir={tmp_path / 'a'}",
            f"--commands={tmp_path / 'list.toml'}",
            "--coordinator=coordinator-1:9820",
            f"--secret-file={coordinator.secret}",
        )
        assert "coordinator-1 is reachable from other machines" in said and "--no-tls" in said

    def test_the_wrong_secret(self, coordinator: Coordinator, tmp_path: Path) -> None:
        (tmp_path / "wrong").write_text("x" * 40)
        (tmp_path / "list.toml").write_text('[commands.nap]\nprogram = "/bin/sleep"\n')
        said = complaint(
            "agent",
            f"--dir={tmp_path / 'a'}",
            f"--commands={tmp_path / 'list.toml'}",
            "--name=north",
            f"--coordinator={coordinator.node_address}",
            f"--secret-file={tmp_path / 'wrong'}",
        )
        assert said.startswith(
            "peacefs: agent: the coordinator refuses this agent: north does not know the secret"
        )
        assert said.endswith("give it the same --secret-file")
