"""A project of the compose files: its files, its services as containers, and a client outside of them."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from .engine import HOST, Engine, StepFailed

_ROOT = Path(__file__).parents[2]
_PATIENCE_S = 120.0
_PEACEFS = f"{sys.executable} -P -m peacefs"


class Project:
    """The services of some compose files. Names of services are those of the files."""

    def __init__(self, engine: Engine, directory: Path, name: str, files: list[str]) -> None:
        self._engine = engine
        self._directory = directory
        self._name = name
        directory.mkdir()
        for file in files:
            shutil.copy(_ROOT / file, directory)
        for folder in ("examples", "deploy"):
            (directory / folder).symlink_to(_ROOT / folder)
        chosen = " ".join(f"-f {file}" for file in files)
        self._compose = f"cd {directory} && PEACEFS_HOST={HOST} podman-compose -p {name} {chosen}"
        self.addresses = f"https://{HOST}:9870"
        self._written = 0

    def prepare(self) -> None:
        """Do what the heads of the compose files say: make the secret and the certificates."""
        names = f"{HOST},coordinator,standby,etcd-1,etcd-2,etcd-3"
        self._engine.inside(
            f"cd {self._directory} && (umask 077; head -c 32 /dev/urandom | base64 > cluster.secret; : > token)"
            f" && {_PEACEFS} certificates create --directory certificates --host {names}"
            f" && chown 1000 cluster.secret certificates/{HOST}-key.pem"
        )

    def tag(self, service: str, image: str) -> None:
        """Give an image the name under which compose looks for that of a service."""
        self._engine.outside(f"podman tag {image} localhost/{self._name}_{service}")

    def up(self, *services: str) -> None:
        self._engine.inside(f"{self._compose} up -d --no-build --no-recreate {' '.join(services)}")

    def run_once(self, service: str, timeout_s: float) -> str:
        return self._engine.inside(f"{self._compose} run --rm -T {service}", timeout_s)[1]

    def container(self, service: str) -> str:
        return f"{self._name}_{service}_1"

    def inspect(self, service: str, form: str) -> str:
        return self._engine.inside(f"podman inspect -f '{{{{{form}}}}}' {self.container(service)}")[1].strip()

    def kill(self, service: str) -> None:
        """Kill the process of a container, as a lack of memory would."""
        os.kill(int(self.inspect(service, ".State.Pid")), 9)

    def replace(self, service: str, image: str) -> None:
        """Replace the container of a service by one of another image; volumes stay."""
        name = self.container(service)
        self._engine.inside(f"podman stop --time 30 {name} && podman rm {name}")
        self.tag(service, image)
        self.up(service)
        wanted = self._engine.inside(f"podman image inspect -f '{{{{.Id}}}}' {image}")[1].strip()
        if self.inspect(service, ".Image") != wanted:
            raise StepFailed(f"{service} does not run {image}")

    def is_healthy(self, service: str) -> bool:
        status, _ = self._engine.inside(f"podman healthcheck run {self.container(service)}", check=False)
        return status == 0

    def administer(self, words: str, service: str = "coordinator") -> str:
        container = self.container(service)
        return self._engine.inside(f"podman exec {container} peacefs --directory /data {words}")[1]

    def become(self, user: str) -> None:
        """Make a home and a token for a user, who is the client from now on."""
        self.administer(f"prepare {user}")
        token = self.administer(f"token create --user {user} --ttl 7d").splitlines()[0]
        (self._directory / "token").write_text(token + "\n")

    def client(self, words: str, timeout_s: float = 120.0) -> str:
        return self._engine.inside(
            f"cd {self._directory} && {_PEACEFS} {words}",
            timeout_s,
            PEACEFS_COORDINATOR=self.addresses,
            PEACEFS_CA_FILE=str(self._directory / "certificates" / "ca.pem"),
            PEACEFS_TOKEN_FILE=str(self._directory / "token"),
        )[1]

    def write_and_read(self) -> None:
        """Write a new file, read it back, and compare."""
        local = self._directory / f"file-{self._written + 1}"
        local.write_bytes(os.urandom(300_000))
        self.client(f"put -f {local.name} /user/alice/{local.name}")
        self._written += 1
        self.client(f"get /user/alice/{local.name} {local.name}.back")
        if _sum(local) != _sum(Path(f"{local}.back")):
            raise StepFailed(f"{local.name} came back as another")

    def read_all(self) -> int:
        """Read every file again that was written. Return their number."""
        for number in range(1, self._written + 1):
            back = self._directory / f"file-{number}.again"
            back.unlink(missing_ok=True)
            self.client(f"get /user/alice/file-{number} {back.name}")
            if _sum(back) != _sum(self._directory / f"file-{number}"):
                raise StepFailed(f"file-{number} came back as another")
        return self._written

    def wait_for_datanodes(self, count: int) -> None:
        wait(lambda: f"Datanodes: {count} alive" in self._report(), f"{count} datanodes are alive")

    def _report(self) -> str:
        try:
            return self.administer("report")
        except StepFailed as failed:
            return str(failed)


def wait(condition: Callable[[], bool], what: str) -> float:
    """Return after how many seconds it was so. Raises StepFailed."""
    began_s = time.monotonic()
    while not condition():
        if time.monotonic() - began_s > _PATIENCE_S:
            raise StepFailed(f"not within {_PATIENCE_S:g} s: {what}")
        time.sleep(0.5)
    return time.monotonic() - began_s


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
