"""Real etcd members for tests, each a process on loopback with its own directory."""

from __future__ import annotations

import atexit
import os
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.killable_process import KillableProcess
from support.waiting import wait_until

from peacefs.client.local_cluster.etcd_process import find_etcd
from peacefs.client.local_cluster.reserved_ports import ReservedPorts
from peacefs.coordinator.journal.etcd import EtcdJournal
from peacefs.coordinator.journal.etcd_client import EtcdAccess
from peacefs.runtime.tls import TlsFiles

# Services restart with their earlier ports.
_PORTS = ReservedPorts("127.0.0.1")
atexit.register(_PORTS.release)


def etcd_binary() -> str:
    """Return the path of etcd. Skip the test if etcd is missing."""
    found = find_etcd()
    if found is None:
        pytest.skip("etcd is not here: on Debian `apt-get install etcd-server`, or run `make setup` again")
    return str(found)


class EtcdMember(KillableProcess):
    """One etcd member. `kill`, `pause` and `go_on` simulate its failures."""

    def __init__(
        self,
        binary: str,
        directory: Path,
        name: str,
        client_port: int,
        peer_port: int,
        quota_bytes: int = 0,
        tls: TlsFiles | None = None,
        disk_bytes: int = 0,
    ) -> None:
        """With `disk_bytes` the member gets its own disk of that size, which is lost when the member is killed."""
        self.name = name
        self._quota_bytes = quota_bytes
        self._disk_bytes = disk_bytes
        self._tls = tls
        self.endpoint = f"127.0.0.1:{client_port}"
        self.peer_url = f"http://127.0.0.1:{peer_port}"
        self._binary = binary
        self._directory = directory

    def start(self, cluster: str) -> None:
        arguments = [self._binary, "--name", self.name, "--data-dir", str(self._directory / self.name)]
        url = f"{'http' if self._tls is None else 'https'}://{self.endpoint}"
        arguments += ["--listen-client-urls", url, "--advertise-client-urls", url]
        if self._tls is not None:
            arguments += ["--cert-file", str(self._tls.certificate), "--key-file", str(self._tls.key)]
            arguments += ["--trusted-ca-file", str(self._tls.ca), "--client-cert-auth"]
        arguments += ["--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url]
        arguments += ["--initial-cluster", cluster, "--initial-cluster-state", "new", "--logger", "zap"]
        arguments += ["--quota-backend-bytes", str(self._quota_bytes)]
        if self._disk_bytes:
            (self._directory / self.name).mkdir(mode=0o700)
            mount = f'mount -t tmpfs -o size={self._disk_bytes},mode=700 tmpfs "$0" && exec "$@"'
            arguments = ["unshare", "--mount", "sh", "-c", mount, str(self._directory / self.name), *arguments]
        with (self._directory / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(arguments, stdout=log, stderr=log, env=_environment())

    def is_healthy(self) -> bool:
        try:
            with self.client() as client:
                answer = client.get("/health")
        except httpx.HTTPError:
            return False
        return answer.is_success and answer.json().get("health") == "true"

    def client(self) -> httpx.Client:
        """Return a client of this member only, with the member's certificate."""
        if self._tls is None:
            return httpx.Client(base_url=f"http://{self.endpoint}", timeout=5, trust_env=False, verify=False)
        context = ssl.create_default_context(cafile=str(self._tls.ca))
        context.load_cert_chain(str(self._tls.certificate), str(self._tls.key))
        return httpx.Client(base_url=f"https://{self.endpoint}", timeout=5, trust_env=False, verify=context)

    def leads(self) -> bool:
        said = self._maintain("status", {})
        return bool(said["leader"] == said["header"]["member_id"])

    def identity(self) -> str:
        """Return etcd's id of the member."""
        return str(self._maintain("status", {})["header"]["member_id"])

    def hand_over(self, successor: EtcdMember) -> None:
        """Transfer leadership to another member, if this one leads."""
        self._maintain("transfer-leadership", {"targetID": successor.identity()})

    def fill_disk(self) -> None:
        """Fill the member's disk."""
        assert self._process is not None
        # The disk is visible only in the member's mount namespace.
        within = Path(f"/proc/{self._process.pid}/root") / self._directory.relative_to("/") / self.name / "filler"
        fill(within)

    def has_ended(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None

    def defragment(self) -> None:
        """Release the space of deleted keys, and clear etcd's alarm."""
        self._maintain("defragment", {})
        for alarm in self._maintain("alarm", {"action": "GET"}).get("alarms", []):
            self._maintain("alarm", {**alarm, "action": "DEACTIVATE"})

    def _maintain(self, what: str, asked: dict[str, Any]) -> dict[str, Any]:
        path = f"http://{self.endpoint}/v3/maintenance/{what}"
        answer = httpx.post(path, json=asked, timeout=60, trust_env=False, verify=False)
        assert answer.is_success, answer.text
        said: dict[str, Any] = answer.json()
        return said


class EtcdMembers:
    """A cluster of etcd members."""

    def __init__(self, members: list[EtcdMember]) -> None:
        self.members = members
        self.cluster = ",".join(f"{each.name}={each.peer_url}" for each in members)

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.endpoint for member in self.members)

    @property
    def address(self) -> str:
        """Return the value of `--journal`."""
        return f"etcd://{','.join(self.endpoints)}"

    def journal(self, prefix: str = "/peacefs") -> EtcdJournal:
        return EtcdJournal(EtcdAccess(self.endpoints), prefix)

    def until_healthy(self) -> None:
        wait_until(lambda: all(member.is_healthy() for member in self.members), "etcd is healthy")


@contextmanager
def etcd_members(
    directory: Path,
    count: int = 1,
    quota_bytes: int = 0,
    tls: TlsFiles | None = None,
    last_disk_bytes: int = 0,
) -> Iterator[EtcdMembers]:
    """Start members; end them at the end of the block. Skip the test if etcd is missing.

    `quota_bytes` limits each member's database (etcd's default is 2 GiB). With `tls`, clients need a certificate
    of the same CA. With `last_disk_bytes`, the last member has its own disk, which needs root.
    """
    binary = etcd_binary()
    ports = free_ports(2 * count)
    members = [
        EtcdMember(
            binary,
            directory,
            f"member-{at}",
            ports[2 * at],
            ports[2 * at + 1],
            quota_bytes,
            tls,
            last_disk_bytes if at == count - 1 else 0,
        )
        for at in range(count)
    ]
    all_of_it = EtcdMembers(members)
    try:
        for member in members:
            member.start(all_of_it.cluster)
        all_of_it.until_healthy()
        yield all_of_it
    finally:
        for member in members:
            member.kill()


def fill(path: Path) -> None:
    """Write a file that fills the disk."""
    with path.open("wb", buffering=0) as filler:
        for size in (1 << 20, 1 << 12):
            with suppress(OSError):
                while True:
                    filler.write(bytes(size))


def free_ports(count: int) -> list[int]:
    """Return distinct loopback ports that stay reserved while this process lives."""
    return [_PORTS.take() for _ in range(count)]


def _environment() -> dict[str, str]:
    return {**os.environ, "ETCD_UNSUPPORTED_ARCH": os.uname().machine}
