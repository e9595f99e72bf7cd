"""Podman, buildah and podman-compose, with a store of their own, in a network of their own."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

_ROOT = Path(__file__).parents[2]
_TOOLS = ("buildah", "debootstrap", "ip", "nsenter", "podman", "podman-compose", "runc")
_BASE_INCLUDES = "python3,python3-venv,ca-certificates"
#: The image that the Dockerfile names. A stand-in for it is made of Debian's packages.
BASE = "localhost/python:3.12-slim"
#: The address of this machine for containers and clients.
HOST = "10.80.0.1"
_CONFIGURATION = """[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
"""


class CannotRunContainers(Exception):
    """Something is not here that containers need."""


class StepFailed(Exception):
    """A command ended with another status than 0."""


class Engine:
    """Use as a context manager: nothing runs after it. Images stay in `directory`, for another time."""

    def __init__(self, directory: Path) -> None:
        missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
        if os.geteuid() != 0 or missing:
            raise CannotRunContainers(
                f"root, and on Debian `apt-get install {' '.join(missing)}`" if missing else "root"
            )
        self._directory = directory
        self._shims = directory / "bin"
        self._namespace = f"peacefs-containers-{os.getpid()}"

    def __enter__(self) -> Self:
        self._shims.mkdir(parents=True, exist_ok=True)
        (self._directory / "containers.conf").write_text(_CONFIGURATION)
        for tool in ("podman", "buildah"):
            store = f"--root {self._directory}/store --runroot {self._directory}/run"
            (self._shims / tool).write_text(f'#!/bin/sh\nexec {shutil.which(tool)} {store} "$@"\n')
            (self._shims / tool).chmod(0o755)
        run(["ip", "netns", "add", self._namespace])
        # A bridge without ports has an address that this machine answers at, as a network card would.
        for words in (
            "link set lo up",
            "link add host0 type bridge",
            f"address add {HOST}/24 dev host0",
            "link set host0 up",
        ):
            run(["ip", "-n", self._namespace, *words.split()])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove_all()
        run(["ip", "netns", "delete", self._namespace], check=False)

    def remove_all(self) -> None:
        """End and remove containers, their volumes and networks."""
        self.inside("podman rm --all --force --time 10", check=False)
        self.inside("podman volume prune --force", check=False)
        self.inside("podman network prune --force", check=False)

    def make_base(self) -> None:
        """Make the stand-in for the base image, unless it is there."""
        if self.outside(f"podman image exists {BASE}", check=False)[0] == 0:
            return
        tree = self._directory / "base"
        if not (tree / "usr/local/bin/pip").exists():
            shutil.rmtree(tree, ignore_errors=True)
            release = platform.freedesktop_os_release()["VERSION_CODENAME"]
            self.outside(f"debootstrap --variant=minbase --include={_BASE_INCLUDES} {release} {tree}", 1200)
            # As in the real one, pip installs below /usr/local. The index may have a certificate of its own.
            self.outside(f"chroot {tree} python3 -m venv /usr/local")
            bundle = Path("/etc/ssl/certs/ca-certificates.crt")
            shutil.copy(bundle, tree / bundle.relative_to("/"))
            (tree / "etc/pip.conf").write_text(f"[global]\ncert = {bundle}\n")
        self.outside(f"tar -C {tree} -c . | podman import - {BASE}", 600)

    def build(self, target: str) -> None:
        """Build one target of the Dockerfile as `localhost/peacefs:TARGET`."""
        words = (
            f"buildah bud --layers --isolation chroot --target {target} --tag localhost/peacefs:{target} {_ROOT}"
        )
        self.outside(words, 2400)

    def outside(self, line: str, timeout_s: float = 300.0, check: bool = True) -> tuple[int, str]:
        """Run a line of a shell in the network of this machine."""
        return run(["bash", "-o", "pipefail", "-c", line], timeout_s, check, self._environment())

    def inside(self, line: str, timeout_s: float = 300.0, check: bool = True, **variables: str) -> tuple[int, str]:
        """Run a line of a shell in the network of the containers."""
        entered = ["nsenter", f"--net=/run/netns/{self._namespace}", "bash", "-o", "pipefail", "-c", line]
        return run(entered, timeout_s, check, {**self._environment(), **variables})

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{self._shims}:{os.environ['PATH']}",
            "CONTAINERS_CONF": str(self._directory / "containers.conf"),
        }


def run(
    command: list[str], timeout_s: float = 300.0, check: bool = True, environment: dict[str, str] | None = None
) -> tuple[int, str]:
    """Return the status and what was said. Raises StepFailed."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        env=environment,
    )
    if check and done.returncode:
        raise StepFailed(f"`{command[-1]}` ended with status {done.returncode}: {done.stdout[-2000:]}")
    return done.returncode, done.stdout
