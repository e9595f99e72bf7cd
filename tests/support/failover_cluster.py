"""Coordinators that share a journal in real etcd, with datanodes, each a process; and a patient client."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
from support.etcd import EtcdMembers, etcd_members, fill, free_ports
from support.killable_process import KillableProcess
from support.open_root import open_root_of
from support.services import ROOT
from support.waiting import PATIENCE_S, wait_until

from peacefs.client.local_cluster.member_process import PEACEFS

_ANSWER_S, _ANSWER_MAX_S = 3.0, 30.0
_AGAIN = ("StandbyException", "RetriableException", "SafeModeException")


class Service(KillableProcess):
    """A peacefs process that can be restarted with the same arguments."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        self._arguments = arguments
        #: The command of the release to start.
        self.program: Sequence[str] = PEACEFS

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*self.program, *self._arguments], cwd=ROOT, stdout=log, stderr=log)

    def exit_status(self) -> int | None:
        assert self._process is not None
        return self._process.poll()

    def without(self, option: str) -> Service:
        """Return the same service without an option."""
        return Service(self._log, *(each for each in self._arguments if not each.startswith(option)))

    def with_options(self, *options: str) -> Service:
        """Return the same service with further options."""
        return Service(self._log, *self._arguments, *options)

    def stop(self) -> int:
        """Ask the process to stop; return its exit status."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(PATIENCE_S)

    def log(self) -> str:
        return self._log.read_text()


class FailoverCluster:
    """Two or more coordinators, and three datanodes that are connected to each."""

    def __init__(self, directory: Path, etcd: EtcdMembers, coordinators: int = 2, datanodes: int = 3) -> None:
        self.directory = directory
        self.etcd = etcd
        secret = directory / "cluster.secret"
        secret.write_text("0123456789abcdef" * 3)
        secret.chmod(0o600)
        self.secret = secret
        ports = free_ports(2 * coordinators)
        self.http = [f"127.0.0.1:{port}" for port in ports[::2]]
        self.node_ports = ports[1::2]
        self.coordinators = [self._coordinator(at, ports[2 * at], ports[2 * at + 1]) for at in range(coordinators)]
        addresses = ",".join(f"127.0.0.1:{port}" for port in self.node_ports)
        self.datanodes = [
            Service(
                directory / f"datanode-{at}.log",
                *("datanode", f"--dir={directory / f'datanode-{at}'}", f"--coordinator={addresses}"),
                *("--port=0", "--data-port=0", f"--secret-file={secret}"),
            )
            for at in range(datanodes)
        ]

    def _coordinator(self, at: int, port: int, node_port: int) -> Service:
        return Service(
            self.directory / f"coordinator-{at}.log",
            *("coordinator", f"--dir={self.directory / f'coordinator-{at}'}", f"--port={port}"),
            *(f"--node-port={node_port}", f"--secret-file={self.secret}", f"--journal={self.etcd.address}"),
        )

    def start(self) -> None:
        self.coordinators[0].start()
        wait_until(lambda: self.leads(0), "the first coordinator leads")
        open_root_of(self.directory / "coordinator-0")
        for service in (*self.coordinators[1:], *self.datanodes):
            service.start()
        for at in range(len(self.coordinators)):
            wait_until(partial(self._has_all_datanodes, at), "all datanodes are everywhere")

    def _has_all_datanodes(self, at: int) -> bool:
        return self.datanodes_at(at) == len(self.datanodes)

    def stop(self) -> None:
        for service in (*self.coordinators, *self.datanodes):
            service.kill()

    def has_disk_of(self, at: int, size_bytes: int) -> None:
        """Give a coordinator its own disk, which is empty at each start. Needs root."""
        place = self.directory / f"coordinator-{at}"
        place.mkdir(mode=0o700)
        mount = f'mount -t tmpfs -o size={size_bytes},mode=700 tmpfs "$0" && exec "$@"'
        self.coordinators[at].program = ("unshare", "--mount", "sh", "-c", mount, str(place), *PEACEFS)

    def fill_disk(self, at: int) -> Callable[[], None]:
        """Fill that disk; return a function that frees it."""
        # The disk is visible only in the coordinator's mount namespace.
        place = (self.directory / f"coordinator-{at}").relative_to("/")
        filler = Path(f"/proc/{self.coordinators[at].pid}/root") / place / "filler"
        fill(filler)
        return filler.unlink

    # -- what they say -------------------------------------------------------------------------------

    def status(self, at: int) -> dict[str, object]:
        answer = httpx.get(f"http://{self.http[at]}/v1/status", timeout=10, trust_env=False, verify=False)
        said: dict[str, object] = answer.json()
        return said

    def datanodes_at(self, at: int) -> int:
        try:
            datanodes = self.status(at)["datanodes"]
        except httpx.HTTPError:
            return 0
        assert isinstance(datanodes, list)
        return sum(1 for each in datanodes if each["state"] == "alive")

    def _try(self, at: int, method: str, path: str, timeout_s: float = 30, **asked: str) -> httpx.Response:
        return httpx.request(
            method,
            f"http://{self.http[at]}/webhdfs/v1{path}",
            params={"user.name": "ann", **asked},
            timeout=timeout_s,
            trust_env=False,
            verify=False,
        )

    def leads(self, at: int) -> bool:
        try:
            return self._try(at, "GET", "/", op="LISTSTATUS").is_success
        except httpx.HTTPError:
            return False

    def stands_by(self, at: int) -> bool:
        try:
            return "StandbyException" in self._try(at, "GET", "/", op="LISTSTATUS").text
        except httpx.HTTPError:
            return False

    # -- a client that knows all addresses ---------------------------------------------------------------

    def ask(self, method: str, path: str, **asked: str) -> httpx.Response:
        """Ask each coordinator in turn until one gives a real answer.

        A frozen coordinator does not answer, so each request has a short timeout. The timeout grows with each
        round without a leader, for busy machines.
        """
        give_up_s = time.monotonic() + PATIENCE_S
        problem, timeout_s = "", _ANSWER_S
        while time.monotonic() < give_up_s:
            for at in range(len(self.coordinators)):
                try:
                    answer = self._try(at, method, path, timeout_s, **asked)
                except httpx.TimeoutException as error:
                    problem, timeout_s = repr(error), min(2 * timeout_s, _ANSWER_MAX_S)
                    continue
                except httpx.TransportError as error:
                    problem = repr(error)
                    continue
                if not any(each in answer.text for each in _AGAIN):
                    return answer
                problem = answer.text
            time.sleep(0.05)
        raise AssertionError(f"{method} {path}: {problem}")

    def write(self, path: str, data: bytes) -> None:
        """Create a file, replacing any other; send the body again if the connection breaks."""
        give_up_s = time.monotonic() + PATIENCE_S
        while True:
            told = self.ask("PUT", path, op="CREATE", overwrite="true")
            assert told.status_code == 307, told.text
            try:
                done = httpx.put(
                    told.headers["location"], content=data, timeout=120, trust_env=False, verify=False
                )
            except httpx.TransportError:
                done = None
            if done is not None and done.status_code == 201:
                return
            assert time.monotonic() < give_up_s, None if done is None else done.text

    def mkdir(self, path: str) -> None:
        answer = self.ask("PUT", path, op="MKDIRS")
        assert answer.is_success, answer.text

    def names(self, path: str = "/") -> set[str]:
        answer = self.ask("GET", path, op="LISTSTATUS")
        assert answer.is_success, answer.text
        return {each["pathSuffix"] for each in answer.json()["FileStatuses"]["FileStatus"]}

    def read(self, path: str) -> bytes:
        told = self.ask("GET", path, op="OPEN")
        assert told.status_code == 307, told.text
        return httpx.get(told.headers["location"], timeout=120, trust_env=False, verify=False).content


@contextmanager
def failover_cluster(
    directory: Path,
    *,
    coordinators: int = 2,
    datanodes: int = 3,
    members: int = 1,
    quota_bytes: int = 0,
    last_disk_bytes: int = 0,
    standby_disk_bytes: int = 0,
    program: Sequence[str] = PEACEFS,
) -> Iterator[FailoverCluster]:
    """Yield a running cluster of the release of `program`. Skip the test if etcd is missing."""
    (directory / "etcd").mkdir()
    with etcd_members(directory / "etcd", members, quota_bytes, last_disk_bytes=last_disk_bytes) as etcd:
        cluster = FailoverCluster(directory, etcd, coordinators, datanodes)
        for service in (*cluster.coordinators, *cluster.datanodes):
            service.program = program
        if standby_disk_bytes:
            cluster.has_disk_of(1, standby_disk_bytes)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
