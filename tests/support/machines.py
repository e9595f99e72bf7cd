"""Machines of a test, each with its own systemd, address, users and disk, reached by `ssh` and `scp`.

A machine is a set of namespaces. Its disk is an overlay over the files of this machine or of a given tree; its
writes stay in memory until the test ends. The *desk* is the operator's machine: it has this machine's files and is
in the network of the other machines. `ssh` and `scp` from the desk enter a machine as root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from support.waiting import wait_until

_START = Path(__file__).with_name("machine_start.sh")
_TOOLS = ("ip", "nsenter", "unshare", "setpriv")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Where this interpreter and its packages are mounted in each machine.
PACKAGES, PYTHON = "/srv/packages", "/srv/python"
_SSH = """#!/bin/bash
# Run words on a machine as ssh does: they are joined, and a shell of root reads them.
while [[ $1 == -* ]]; do shift; done
host=${{1#root@}}; shift
pid=$(cat {directory}/"$host".pid) || exit 255
exec nsenter --target "$pid" --mount --uts --ipc --net --pid --cgroup --root --wdns=/root -- \\
    env -i HOME=/root USER=root LANG=C.UTF-8 PATH={path} /bin/bash -c "$*"
"""
_SCP = """#!/bin/bash
# Copy files to one machine.
options=()
while [[ $1 == -* ]]; do [[ $1 == -r ]] && options+=(-r); shift; done
target=${{*: -1}}
host=${{target%%:*}} path=${{target#*:}}
pid=$(cat {directory}/"${{host#root@}}".pid) || exit 255
[[ $path == /* ]] || path=/root/$path
exec cp "${{options[@]}}" "${{@:1:$#-1}}" "/proc/$pid/root$path"
"""


def require_machines() -> None:
    """Skip the test if machines cannot be made here."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing or not Path("/lib/systemd/systemd").exists():
        pytest.skip(
            f"machines need root, systemd, iproute2 and util-linux; not here: {missing or 'root, systemd'}"
        )


def _inside(namespace: str) -> list[str]:
    return ["nsenter", f"--net=/run/netns/{namespace}"]


class Machines:
    """Use as a context manager. `addresses` maps names of machines to addresses of one /24."""

    def __init__(self, directory: Path, addresses: Mapping[str, str], desk: str, lower: Path = Path("/")) -> None:
        self.directory = directory
        self.addresses = dict(addresses)
        self.desk_directory = directory / "desk"
        self._desk_address = desk
        self._lower = lower
        self._desk_namespace = f"peacefs-desk-{os.getpid()}"
        self._shims = directory / "shims"
        self._running: list[subprocess.Popen[bytes]] = []
        self._cgroups: list[Path] = []

    def __enter__(self) -> Self:
        self.desk_directory.mkdir()
        self._shims.mkdir()
        try:
            self._build()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def run(self, text: str, timeout_s: float = 240.0, check: bool = True, path: Sequence[str] = ()) -> str:
        """Run shell lines on the desk, and stop at the first that fails. Return the output."""
        hosts = self.directory / "hosts"
        enter = f"mount --bind {hosts} /etc/hosts && exec bash -euo pipefail"
        inside = [*_inside(self._desk_namespace), "unshare", "--mount", "sh", "-c", enter]
        environment = {
            "HOME": str(self.desk_directory),
            "LANG": "C.UTF-8",
            "PATH": ":".join([*path, str(self._shims), _PATH]),
            "PEACEFS_CONFIG": "",
            "USER": "operator",
        }
        done = subprocess.run(
            inside,
            input=text,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.desk_directory,
            env=environment,
            timeout=timeout_s,
        )
        assert not check or done.returncode == 0, f"{text}\n{done.returncode}: {done.stdout}{self.said()}"
        return done.stdout

    def on(self, name: str, text: str, check: bool = True, timeout_s: float = 240.0) -> str:
        """Run lines on one machine as root; return the output."""
        return self.run(f"ssh root@{name} bash -es <<'PEACEFS_LINES'\n{text}\nPEACEFS_LINES\n", timeout_s, check)

    def stop(self, name: str) -> None:
        """Cut the power of one machine."""
        own = self._running[list(self.addresses).index(name)]
        own.kill()
        own.wait()
        (self.directory / f"{name}.pid").unlink()

    def said(self) -> str:
        """Return the ends of all machines' journals, for the diagnosis of a failure."""
        told = []
        for name in self.addresses:
            if (self.directory / f"{name}.pid").exists():
                command = [
                    str(self._shims / "ssh"),
                    name,
                    "journalctl --no-pager -n 30 -o cat -u 'peacefs-*' -u etcd",
                ]
                done = subprocess.run(command, capture_output=True, text=True, timeout=60)
                told.append(f"\n-- {name}\n{done.stdout}")
        return "".join(told)

    def add_program(self, name: str, text: str) -> None:
        """Install a program that takes precedence over others of that name, on the desk and on each machine."""
        (self._shims / name).write_text(text)
        (self._shims / name).chmod(0o755)
        for host in self.addresses:
            self.run(f"scp {self._shims / name} root@{host}:/usr/local/sbin/{name}")

    # -- how it is built -----------------------------------------------------------------------------

    def _build(self) -> None:
        for name, text in (("ssh", _SSH), ("scp", _SCP)):
            (self._shims / name).write_text(text.format(directory=self.directory, path=_PATH))
            (self._shims / name).chmod(0o755)
        everybody = {**self.addresses, "desk": self._desk_address}
        hosts = "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in everybody.items())
        (self.directory / "hosts").write_text(hosts)
        self._ip(f"netns add {self._desk_namespace}")
        self._ip(
            "link add cables type bridge",
            f"address add {self._desk_address}/24 dev cables",
            "link set lo up",
            "link set cables up",
            inside=self._desk_namespace,
        )
        for number, (name, address) in enumerate(self.addresses.items()):
            self._add(number, name, address, hosts)
        for name in self.addresses:
            wait_until(lambda name=name: self._is_up(name), f"{name} has booted")  # type: ignore[misc]

    def _add(self, number: int, name: str, address: str, hosts: str) -> None:
        base = self.directory / name
        base.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(base)], check=True)
        for each in ("upper/etc", "work", "root"):
            (base / each).mkdir(parents=True)
        (base / "upper/etc/hosts").write_text(hosts)
        (base / "upper/etc/hostname").write_text(f"{name}\n")
        namespace = self._namespace(name)
        self._ip(f"netns add {namespace}")
        self._ip(
            f"link add cable-{number} type veth peer name eth0 netns {namespace}",
            f"link set cable-{number} master cables up",
            inside=self._desk_namespace,
        )
        self._ip(f"address add {address}/24 dev eth0", "link set lo up", "link set eth0 up", inside=namespace)
        mounts = [f"{sysconfig.get_path('purelib')}:{PACKAGES}"]
        if sys.base_prefix != "/usr":
            mounts.append(f"{sys.base_prefix}:{PYTHON}")
        cgroup = self._cgroup(name)
        entered = f"echo $$ > {cgroup}/cgroup.procs && exec unshare --mount --pid --fork --uts --ipc --cgroup"
        words = " ".join([f"--kill-child bash {_START} {base} {self._lower}", *mounts])
        start = ["setpriv", "--pdeathsig", "KILL", "sh", "-c", f"{entered} {words}"]
        with (self.directory / f"{name}.console").open("wb") as console:
            self._running.append(
                subprocess.Popen(
                    [*_inside(namespace), *start], stdin=subprocess.DEVNULL, stdout=console, stderr=console
                )
            )

    def _is_up(self, name: str) -> bool:
        own = self._running[list(self.addresses).index(name)]
        console = (self.directory / f"{name}.console").read_text(errors="replace")
        assert own.poll() is None, f"{name} did not boot: {console[-800:]}"
        children = Path(f"/proc/{own.pid}/task/{own.pid}/children").read_text().split()
        if not children or not Path(f"/proc/{children[0]}/root/run/systemd/private").exists():
            return False
        (self.directory / f"{name}.pid").write_text(children[0])
        asked = subprocess.run(
            [self._shims / "ssh", name, "systemctl is-active basic.target"], capture_output=True, text=True
        )
        return asked.stdout.strip() == "active"

    def _cgroup(self, name: str) -> Path:
        top = Path("/sys/fs/cgroup")
        top = top if (top / "cgroup.controllers").exists() else top / "systemd"
        if not top.is_dir():
            pytest.skip("machines need a cgroup hierarchy that systemd can use")
        cgroup = top / f"peacefs-{os.getpid()}-{name}"
        cgroup.mkdir()
        self._cgroups.append(cgroup)
        return cgroup

    def _namespace(self, name: str) -> str:
        return f"peacefs-{name}-{os.getpid()}"

    @staticmethod
    def _ip(*lines: str, inside: str = "") -> None:
        command = ["ip", *(["-n", inside] if inside else []), "-batch", "-"]
        done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no network of machines can be made here: {done.stderr.strip()}")

    def _close(self) -> None:
        for each in self._running:
            # This kills the machine's init process, and with it all others.
            each.kill()
            each.wait()
        for name in self.addresses:
            subprocess.run(["ip", "netns", "delete", self._namespace(name)], capture_output=True)
            subprocess.run(["umount", "--lazy", str(self.directory / name)], capture_output=True)
        subprocess.run(["ip", "netns", "delete", self._desk_namespace], capture_output=True)
        for top in self._cgroups:
            wait_until(lambda top=top: self._removed(top), f"{top} is empty")  # type: ignore[misc]

    @staticmethod
    def _removed(top: Path) -> bool:
        for folder in sorted((path for path in (top, *top.rglob("*")) if path.is_dir()), reverse=True):
            try:
                folder.rmdir()
            except OSError:
                return False
        return True
