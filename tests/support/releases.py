"""peacefs in two releases: this tree's, and the one before it, of which a wheel is built from its commit."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.killable_process import KillableProcess
from support.services import ROOT
from support.waiting import PATIENCE_S

from peacefs.client.local_cluster.member_process import PEACEFS
from release.changelog import ReleaseFault
from release.packages import build_previous, previous_of

#: The command of this tree's peacefs.
NEW = tuple(PEACEFS)


def previous_release(cache: Path) -> tuple[str, ...]:
    """Return the command of the release before, built once into `cache`; skip the test without its commit."""
    previous = previous_of(ROOT)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        unpacked = cache / previous.commit
        if not unpacked.exists():
            try:
                wheel = build_previous(ROOT, cache)
            except ReleaseFault as fault:
                pytest.skip(str(fault))
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(cache / "unfinished")
            (cache / "unfinished").rename(unpacked)
    # Before the site-packages of this Python, where its dependencies are, and maybe this tree.
    return "env", f"PYTHONPATH={unpacked}", sys.executable, "-P", "-m", "peacefs"


def python_of(program: tuple[str, ...]) -> tuple[str, ...]:
    """Return the Python that imports the peacefs of a command."""
    return program[: program.index("-m")]


class Service(KillableProcess):
    """A service that is started again with another release, on the same directory and ports."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        self._arguments = arguments

    def start(self, program: tuple[str, ...]) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*program, *self._arguments], cwd=ROOT, stdout=log, stderr=log)

    def stop(self) -> int:
        """Ask it to stop; return its exit status."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(PATIENCE_S)

    def exit_status(self) -> int | None:
        assert self._process is not None
        return self._process.poll()

    def log(self) -> str:
        return self._log.read_text()
