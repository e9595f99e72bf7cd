"""Processes of this machine that are at work, as the kernel says.

On a machine whose cores are all taken a process may wait for one so long that it seems to be dead. The kernel
knows better: it runs, or waits to run, or has used processor time. One that was stopped, or hangs, has not.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

#: It runs or waits for a processor, or for a disk.
_AT_WORK = "RD"


class ProcessState(NamedTuple):
    state: str
    #: Ticks of processor time that it has used.
    used: int


def parse(stat: str) -> ProcessState:
    """Return what `/proc/<pid>/stat` says. The name, in brackets, may contain anything."""
    fields = stat.rpartition(")")[2].split()
    return ProcessState(fields[0], int(fields[11]) + int(fields[12]))


class ProcessWatch:
    """One process, looked at from time to time."""

    def __init__(self, pid: int) -> None:
        self._stat = Path(f"/proc/{pid}/stat")
        self._used: int | None = None

    def at_work(self) -> bool:
        """Return whether it has something to do, or had since the last look; False where nobody can say."""
        try:
            state, used = parse(self._stat.read_text())
        except OSError:
            return False
        worked = self._used is not None and used > self._used
        self._used = used
        return worked or state in _AT_WORK
