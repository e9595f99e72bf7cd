"""Processes of this machine that are working, according to the kernel.

On an overloaded machine a process may wait for a processor so long that it seems to be dead. The kernel knows
whether it runs, waits to run, or has used processor time. A stopped or hung process has not.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

#: It runs, or waits for a processor or a disk.
_AT_WORK = "RD"


class ProcessState(NamedTuple):
    state: str
    #: Processor time that it has used, in ticks.
    used: int


def parse(stat: str) -> ProcessState:
    """Parse `/proc/<pid>/stat`. The process name, in brackets, may contain anything."""
    fields = stat.rpartition(")")[2].split()
    return ProcessState(fields[0], int(fields[11]) + int(fields[12]))


class ProcessWatch:
    """A process that is sampled repeatedly."""

    def __init__(self, pid: int) -> None:
        self._stat = Path(f"/proc/{pid}/stat")
        self._used: int | None = None

    def at_work(self) -> bool:
        """Return True if the process has work, or has worked since the last call. False if that is unknown."""
        try:
            state, used = parse(self._stat.read_text())
        except OSError:
            return False
        worked = self._used is not None and used > self._used
        self._used = used
        return worked or state in _AT_WORK
