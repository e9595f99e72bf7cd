"""A coordinator with many files is killed with -9 and started again: when does it answer, when is it ready?

Each file has one chunk on three datanodes. The datanodes are only connections: real links of datanodes
(`linked_datanodes`) in this process, which report chunks that they do not have. They share the machine's cores
with the coordinator, and reconnect 0.5 to 5 s after the disconnection, as real ones do. Meanwhile one client
repeatedly requests the status of a file; its longest wait shows how long the event loop was blocked.

The memory of files is measured separately from that of chunks, with a coordinator that has as many empty files. It
is first asked for a thousand of them, so that its page cache of the store is as in operation.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peacefs.protocol.messages import Replica
from peacefs.runtime.secret import read_secrets

from .idle import resident_mb
from .linked_datanodes import LinkedDatanode
from .namespaces import existing, load
from .report import show

_NODES = ("node-a", "node-b", "node-c")
_LIMIT_S = 600.0
_FILES_ASKED_FOR = 1000


def main(*, quick: bool = False, files: int | None = None) -> None:
    count = files or (5000 if quick else 200_000)
    with tempfile.TemporaryDirectory() as scratch:
        empty_mb = _memory(Path(scratch) / "empty", 0)
        names_mb = _memory(Path(scratch) / "names", count)
        directory = Path(scratch) / "full"
        directory.mkdir()
        replicas = load(directory / "metadata.sqlite", count, _NODES)
        row = _kill_and_restart(directory, count, replicas, empty_mb, names_mb)
    show("restart", f"A coordinator with {count} files, r = 3, killed with -9 and started again", [row])


class _Coordinator:
    """The coordinator as a process, with the same ports at each start."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.http_port = self.node_port = 0
        self.cluster = ""
        self.start()

    def start(self) -> None:
        ready, theirs = os.pipe()
        command = [sys.executable, "-P", "-m", "peacefs", "coordinator", f"--dir={self._directory}"]
        command += [f"--port={self.http_port}", f"--node-port={self.node_port}", f"--ready-fd={theirs}"]
        with (self._directory.parent / "coordinator.log").open("a") as log:
            self.process = subprocess.Popen(command, stderr=log, pass_fds=[theirs])
        os.close(theirs)
        with os.fdopen(ready) as pipe:
            said = json.loads(pipe.readline())
        self.http_port, self.node_port, self.cluster = said["http_port"], said["node_port"], said["cluster"]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def ask(self, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=60.0)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == 200, (answer.status, body)
            return body
        finally:
            connection.close()

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask("/v1/status"))
        return found

    def loop_lateness_s(self) -> float:
        found = re.search(rb"^peacefs_loop_lateness_longest_seconds (\S+)$", self.ask("/metrics"), re.MULTILINE)
        assert found is not None
        return float(found[1])


class _Asker:
    """Requests the status of a file continuously, and records the longest wait after the first answer."""

    def __init__(self, coordinator: _Coordinator, path: str) -> None:
        self._coordinator = coordinator
        self._url = f"/webhdfs/v1{path}?op=GETFILESTATUS"
        self.first_answer_s = 0.0
        self.longest_s = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            asked_s = time.monotonic()
            try:
                self._coordinator.ask(self._url)
            except OSError:
                time.sleep(0.01)
                continue
            answered_s = time.monotonic()
            if self.first_answer_s:
                self.longest_s = max(self.longest_s, answered_s - asked_s)
            else:
                self.first_answer_s = answered_s
            time.sleep(0.005)


def _memory(directory: Path, files: int) -> float:
    """Return the memory in MB with so many empty files."""
    directory.mkdir()
    if files:
        load(directory / "metadata.sqlite", files, ())
    coordinator = _Coordinator(directory)
    try:
        coordinator.status()
        for number in range(0, files, max(1, files // _FILES_ASKED_FOR)):
            coordinator.ask(f"/webhdfs/v1{existing(number)}?op=GETFILESTATUS")
        time.sleep(1.0)
        return resident_mb(coordinator.process.pid)
    finally:
        coordinator.kill()


def _kill_and_restart(
    directory: Path, files: int, replicas: list[Replica], empty_mb: float, names_mb: float
) -> dict[str, Any]:
    coordinator = _Coordinator(directory)
    [secret] = read_secrets(directory / "cluster.secret")
    datanodes = [
        LinkedDatanode([coordinator.node_port], coordinator.cluster, secret, node, replicas) for node in _NODES
    ]
    asker = _Asker(coordinator, existing(files // 2))
    try:
        for datanode in datanodes:
            datanode.link.start()
        _until_all_reported(coordinator, files)
        coordinator.kill()
        killed_s = time.monotonic()
        asker.start()
        coordinator.start()
        ready_s = _until(lambda: coordinator.status()["ready"])
        reported_s = _until_all_reported(coordinator, files)
        asker.stop()
        memory_mb = resident_mb(coordinator.process.pid)
        return {
            "files": files,
            "database MB": (directory / "metadata.sqlite").stat().st_size / 1e6,
            "first answer s": asker.first_answer_s - killed_s,
            "ready s": ready_s - killed_s,
            "all reported s": reported_s - killed_s,
            "longest status ms": asker.longest_s * 1000,
            "loop late ms": coordinator.loop_lateness_s() * 1000,
            "memory MB": memory_mb,
            "empty MB": empty_mb,
            "bytes a file": (names_mb - empty_mb) / files * 1e6,
            "bytes a chunk": (memory_mb - names_mb) / files * 1e6,
        }
    finally:
        asker.stop()
        for datanode in datanodes:
            datanode.link.stop()
        coordinator.kill()


def _until_all_reported(coordinator: _Coordinator, files: int) -> float:
    def all_reported() -> bool:
        held = [node["replicas"] for node in coordinator.status()["datanodes"]]
        return held == [files] * len(_NODES)

    return _until(all_reported)


def _until(condition: Callable[[], bool]) -> float:
    """Wait for a condition; return its time in monotonic seconds."""
    deadline_s = time.monotonic() + _LIMIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "it takes too long"
        time.sleep(0.05)
    return time.monotonic()
