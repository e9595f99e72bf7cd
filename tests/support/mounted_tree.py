"""`peacefs mount` as a process, on a test's directory. Tests that cannot mount are skipped with a reason."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.waiting import wait_until


def require_fuse() -> None:
    """Skip the test if this machine has no FUSE."""
    if not Path("/dev/fuse").exists():
        pytest.skip("this machine has no /dev/fuse")
    if shutil.which("fusermount3") is None:
        pytest.skip("libfuse 3 is not installed: apt-get install fuse3, or as root make setup")
    pytest.importorskip("mfusepy")


class MountProcess:
    """A mount in a process of its own. `kill` simulates a crash."""

    def __init__(self, address: str, directory: Path, *options: str, user: str = "alice") -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.log = directory.with_name(f"{directory.name}.log")
        environment = os.environ | {"HADOOP_USER_NAME": user, "PEACEFS_COORDINATOR": address}
        command = [sys.executable, "-m", "peacefs", "mount", str(directory), *options]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log, env=environment)
        try:
            wait_until(lambda: directory.is_mount() or self.process.poll() is not None, "the mount")
            if self.process.poll() is not None:
                raise RuntimeError(self.log.read_text())
        except BaseException:
            self.close()
            raise

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def close(self) -> None:
        # Unmount lazily, because a failed test may have left files open.
        subprocess.run(
            ["fusermount3", "-u", "-z", str(self.directory)], capture_output=True, timeout=60, check=False
        )
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.process.kill()
        self.process.wait(20)


@contextmanager
def mounted(address: str, directory: Path, *options: str, user: str = "alice") -> Iterator[MountProcess]:
    mount = MountProcess(address, directory, *options, user=user)
    try:
        yield mount
    finally:
        mount.close()
