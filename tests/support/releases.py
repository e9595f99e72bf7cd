"""peacefs in two releases: this tree's, and the previous one, built as a wheel from its commit."""

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

#: The command that runs this tree's peacefs.
NEW = tuple(PEACEFS)


def previous_release(cache: Path) -> tuple[str, ...]:
    """Return the command of the previous release, built once into `cache`. Skip the test without its commit."""
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
    # Put the release before this Python's site-packages, which have its dependencies and perhaps this tree.
    return "env", f"PYTHONPATH={unpacked}", sys.executable, "-P", "-m", "peacefs"


def python_of(program: tuple[str, ...]) -> tuple[str, ...]:
    """Return a Python that imports the peacefs of a command."""
    return program[: program.index("-m")]


class Service(KillableProcess):
    """A service that can restart in another release, with the same directory and ports."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        self._arguments = arguments

    def start(self, program: tuple[str, ...]) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*program, *self._arguments], cwd=ROOT, stdout=log, stderr=log)

    def stop(self) -> int:
        """Ask the process to stop; return its exit status."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(PATIENCE_S)

    def exit_status(self) -> int | None:
        assert self._process is not None
        return self._process.poll()

    def log(self) -> str:
        return self._log.read_text()
