"""The compose files' commands and environment, without containers: two coordinators, etcd over TLS, a datanode."""

from __future__ import annotations

import getpass
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.etcd import etcd_binary, free_ports
from support.services import ROOT
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.member_process import PEACEFS
from peacefs.protocol.errors import PeacefsError

pytestmark = pytest.mark.cluster
_FILES = ("docker-compose.yml", "docker-compose.standby.yml")
_HOST = "127.0.0.1"
_STARTED = ("etcd-1", "etcd-2", "etcd-3", "coordinator", "standby", "datanode-1")


def merged() -> dict[str, dict[str, Any]]:
    """Return the services after merging both files as compose does."""
    services: dict[str, dict[str, Any]] = {}
    for file in _FILES:
        for name, service in yaml.safe_load((ROOT / file).read_text())["services"].items():
            services.setdefault(name, {}).update(service)
    return services


class Machine:
    """One machine for all containers: a directory for each `/data`, a local port for each of their ports."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._secrets = directory / "secrets"
        self._secrets.mkdir()
        self._ports: dict[tuple[str, str], int] = {}
        self._free = iter(free_ports(24))
        (self._secrets / "cluster").write_text("0123456789abcdef" * 3)
        made = directory / "certificates"
        command = [*PEACEFS, "certificates", "create", "--directory", str(made), "--host", _HOST]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        self.ca = made / "ca.pem"
        for name, file in (("certificate", f"{_HOST}.pem"), ("key", f"{_HOST}-key.pem"), ("ca", "ca.pem")):
            (self._secrets / name).write_bytes((made / file).read_bytes())
        for file in self._secrets.iterdir():
            file.chmod(0o600)

    def port(self, service: str, port: str) -> int:
        """Return the local port. Only members of etcd share port numbers."""
        key = (service if port in ("2379", "2380") else "", port)
        if key not in self._ports:
            self._ports[key] = next(self._free)
        return self._ports[key]

    def here(self, service: str, text: str) -> str:
        """Translate a command, or the value of a variable, for this machine."""

        def address(match: re.Match[str]) -> str:
            host = service if match[1] == "0.0.0.0" else match[1]
            return f"{_HOST}:{self.port(host, match[2])}"

        text = re.sub(r"\$\{PEACEFS_HOST:\?[^}]*\}", _HOST, text)
        text = text.replace("/run/secrets", str(self._secrets))
        text = re.sub(r"(0\.0\.0\.0|coordinator|standby|etcd-\d):(\d+)", address, text)
        text = re.sub(r"(--[a-z-]*port) (\d+)", lambda match: f"{match[1]} {self.port(service, match[2])}", text)
        text = text.replace("0.0.0.0", _HOST)
        return re.sub(r"(?<= )/data\b", str(self.directory / service), text)


@contextmanager
def started(machine: Machine, services: dict[str, dict[str, Any]]) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    etcd = etcd_binary()
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in _STARTED:
            service = services[name]
            (machine.directory / name).mkdir(mode=0o700)
            program = [etcd] if name.startswith("etcd") else list(PEACEFS)
            variables = {key: machine.here(name, value) for key, value in service.get("environment", {}).items()}
            with (machine.directory / f"{name}.log").open("wb") as log:
                running[name] = subprocess.Popen(
                    [*program, *shlex.split(machine.here(name, service["command"]))],
                    stdout=log,
                    stderr=log,
                    cwd=ROOT,
                    env={**os.environ, "ETCD_UNSUPPORTED_ARCH": os.uname().machine, **variables},
                )
        yield running
    finally:
        for process in running.values():
            process.kill()
            process.wait()


def test_compose_with_a_standby_fails_over(tmp_path: Path) -> None:
    machine, services = Machine(tmp_path), merged()
    with started(machine, services) as running:
        addresses = ",".join(
            f"{_HOST}:{machine.port(name, port)}" for name, port in (("coordinator", "9870"), ("standby", "9871"))
        )
        with PeaceFileSystem(f"https://{addresses}", getpass.getuser(), ca_file=machine.ca) as files:

            def coordinators() -> int:
                try:
                    status = files.cluster_status()
                except PeacefsError:
                    return 0
                alive = [each for each in status["datanodes"] if each["state"] == "alive"]
                warm = [each for each in status["failover"]["coordinators"] if each["is_warm"]]
                return len(warm) if alive else 0

            wait_until(lambda: coordinators() == 2, "both are there, and a datanode")
            files.write("/before", b"before", replication=1)
            running["coordinator"].kill()
            files.write("/after", b"after", replication=1)
            assert (files.read("/before"), files.read("/after")) == (b"before", b"after")
