"""Two coordinators, three members of etcd and datanodes, each a process on this machine, with faults to inject."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from peacefs.client.local_cluster.etcd_process import find_etcd
from peacefs.client.local_cluster.reserved_ports import ReservedPorts
from peacefs.protocol.messages import Replica
from peacefs.runtime.secret import read_secrets

from .linked_datanodes import FULL, LinkedDatanode

_HOST = "127.0.0.1"
_LIMIT_S = 900.0
_PEACEFS = (sys.executable, "-P", "-m", "peacefs")


class Process:
    """A process that can be restarted with the same arguments."""

    def __init__(self, log: Path, *command: str) -> None:
        self._log = log
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        environment = {**os.environ, "ETCD_UNSUPPORTED_ARCH": os.uname().machine}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=environment)

    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)


class Coordinator(Process):
    """One of the two coordinators. `ask` sends a request on a new connection."""

    def __init__(self, log: Path, port: int, node_port: int, *options: str) -> None:
        self.port, self.node_port = port, node_port
        ports = (f"--port={port}", f"--node-port={node_port}")
        super().__init__(log, *_PEACEFS, "coordinator", *ports, *options)

    @property
    def netloc(self) -> str:
        return f"{_HOST}:{self.port}"

    def ask(self, method: str, path: str, timeout_s: float = 60.0) -> tuple[int, bytes]:
        """Send a request on a new connection. Raises OSError, http.client.HTTPException."""
        connection = http.client.HTTPConnection(_HOST, self.port, timeout=timeout_s)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def status(self) -> dict[str, Any]:
        """Return the coordinator's status. Raises OSError, http.client.HTTPException."""
        found: dict[str, Any] = json.loads(self.ask("GET", "/v1/status")[1])
        return found


class EtcdMember(Process):
    """One member of etcd."""

    def __init__(self, binary: Path, directory: Path, name: str, ports: tuple[int, int], cluster: str) -> None:
        clients, peers = f"http://{_HOST}:{ports[0]}", f"http://{_HOST}:{ports[1]}"
        self.url = clients
        super().__init__(
            directory / f"{name}.log",
            *(str(binary), "--name", name, "--data-dir", str(directory / name)),
            *("--listen-client-urls", clients, "--advertise-client-urls", clients),
            *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
            *("--initial-cluster", cluster, "--logger", "zap"),
            *("--heartbeat-interval", "50", "--election-timeout", "500"),
        )

    def is_healthy(self) -> bool:
        try:
            answer = httpx.get(f"{self.url}/health", timeout=5, trust_env=False)
        except httpx.HTTPError:
            return False
        return answer.is_success and answer.json().get("health") == "true"

    def leads(self) -> bool:
        """Return whether it is etcd's leader."""
        asked = f"{self.url}/v3/maintenance/status"
        said = httpx.post(asked, content=b"{}", timeout=5, trust_env=False).json()
        return bool(said["leader"] == said["header"]["member_id"])


class FailoverCluster:
    """A cluster of real datanodes for new files, and of linked ones that hold the existing files."""

    def __init__(self, directory: Path, datanodes: int, linked: int, members: int = 3) -> None:
        binary = find_etcd()
        if binary is None:
            raise SystemExit("etcd is not here: `apt-get install etcd-server`, or run `make setup` again")
        self.directory = directory
        self._reserved = ReservedPorts(_HOST)
        ports = [self._reserved.take() for _ in range(2 * members + 4)]
        pairs = [(ports[2 * at], ports[2 * at + 1]) for at in range(members)]
        cluster = ",".join(f"m{at}=http://{_HOST}:{pair[1]}" for at, pair in enumerate(pairs))
        self.members = [EtcdMember(binary, directory, f"m{at}", pair, cluster) for at, pair in enumerate(pairs)]
        self._secret_file = directory / "cluster.secret"
        self._secret_file.write_text("0123456789abcdef" * 3)
        self._secret_file.chmod(0o600)
        journal = "etcd://" + ",".join(f"{_HOST}:{pair[0]}" for pair in pairs)
        shared = (f"--secret-file={self._secret_file}", f"--journal={journal}")
        left = ports[2 * members :]
        self.coordinators = [
            Coordinator(
                directory / f"c{at}.log", left[2 * at], left[2 * at + 1], f"--dir={self.store(at)}", *shared
            )
            for at in range(2)
        ]
        addresses = ",".join(f"{_HOST}:{each.node_port}" for each in self.coordinators)
        self.datanodes = [
            Process(
                directory / f"datanode-{at}.log",
                *(*_PEACEFS, "datanode", f"--dir={directory / f'datanode-{at}'}", f"--coordinator={addresses}"),
                *("--port=0", "--data-port=0", f"--secret-file={self._secret_file}"),
            )
            for at in range(datanodes)
        ]
        self._linked_names = tuple(f"linked-{at}" for at in range(linked))
        self._linked: list[LinkedDatanode] = []
        self._replicas: list[Replica] = []

    @property
    def addresses(self) -> str:
        """The addresses for `PeaceFileSystem` and Spark."""
        return "http://" + ",".join(each.netloc for each in self.coordinators)

    def store(self, at: int) -> Path:
        return self.directory / f"store-{at}"

    def fill(self, load: Callable[[Path, tuple[str, ...]], list[Replica]]) -> None:
        """Fill the first coordinator with files that linked datanodes hold."""
        self.store(0).mkdir(mode=0o700)
        self._replicas = load(self.store(0) / "metadata.sqlite", self._linked_names)

    def __enter__(self) -> Self:
        try:
            for member in self.members:
                member.start()
            _until(lambda: all(member.is_healthy() for member in self.members), "etcd is healthy")
            self.coordinators[0].start()
            _until(lambda: self.leads(self.coordinators[0]), "the first coordinator leads")
            self.coordinators[1].start()
            for datanode in self.datanodes:
                datanode.start()
            cluster = self.coordinators[0].status()["cluster"]
            [secret] = read_secrets(self._secret_file)
            ports = [each.node_port for each in self.coordinators]
            for name in self._linked_names:
                self._linked.append(LinkedDatanode(ports, cluster, secret, name, self._replicas, FULL))
                self._linked[-1].link.start()
            self.settle()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        for linked in self._linked:
            linked.link.stop()
        for process in (*self.coordinators, *self.datanodes, *self.members):
            process.kill()
        self._reserved.release()

    # -- its state ---------------------------------------------------------------------------------------

    def leads(self, coordinator: Coordinator) -> bool:
        try:
            return coordinator.ask("GET", "/webhdfs/v1/?op=GETFILESTATUS&user.name=ann", 0.5)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def settle(self) -> tuple[Coordinator, Coordinator]:
        """Wait until one coordinator leads and the other is warm; return the leader and the standby."""
        found: list[tuple[Coordinator, Coordinator]] = []

        def is_settled() -> bool:
            found.clear()
            for leader, other in (self.coordinators, self.coordinators[::-1]):
                if self.leads(leader) and self._is_warm(other) and self._is_warm(leader):
                    found.append((leader, other))
            return bool(found)

        _until(is_settled, "one leads, and the other is ready to")
        return found[0]

    def _is_warm(self, coordinator: Coordinator) -> bool:
        try:
            status = coordinator.status()
        except (OSError, http.client.HTTPException):
            return False
        alive = [each for each in status["datanodes"] if each["state"] == "alive"]
        held = [each["replicas"] for each in alive if each["node"] in self._linked_names]
        failover = status["failover"]
        return (
            len(alive) == len(self.datanodes) + len(self._linked_names)
            and held == [len(self._replicas)] * len(self._linked_names)
            and failover["lag"] == 0
            and sum(1 for each in failover["coordinators"] if each["is_warm"]) == len(self.coordinators)
        )

    def etcd_leader(self) -> EtcdMember:
        return next(member for member in self.members if member.leads())

    # -- faults ------------------------------------------------------------------------------------------

    def strike(self, fault: str, leader: Coordinator) -> Sequence[Process]:
        """Inject the fault at the leader; return the processes to restart."""
        if fault == "killed":
            leader.kill()
            return [leader]
        if fault == "frozen":
            leader.signal(signal.SIGSTOP)
            return [leader]
        if fault == "machine":
            member = self.etcd_leader()
            for process in (leader, member):
                process.signal(signal.SIGKILL)
            return [member, leader]
        assert fault == "handed over"
        status, said = leader.ask("POST", f"/v1/coordinator/hand-over?user={os.environ.get('USER', 'root')}")
        assert status == 200, said
        return [leader]

    def mend(self, fault: str, struck: Sequence[Process]) -> None:
        for process in struck:
            if fault == "frozen":
                process.signal(signal.SIGCONT)
            _until(process.has_ended, "what was struck has ended")
            process.start()


def _until(condition: Callable[[], bool], what: str) -> None:
    give_up_s = time.monotonic() + _LIMIT_S
    while not condition():
        if time.monotonic() > give_up_s:
            raise SystemExit(f"this has not come about: {what}")
        time.sleep(0.1)
