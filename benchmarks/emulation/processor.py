"""Measure how busy the processors were, and with what, to see whether they were the limit."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

_TICKS_S = os.sysconf("SC_CLK_TCK")


class ProcessorUse:
    """Measures processor use from its creation on. Processes that end meanwhile are not counted."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = list(pids)
        self._before_s = self._of_processes_s()
        self._machine_before_s = _busy_s()
        self._begun_s = time.monotonic()

    def shares(self) -> tuple[float, float]:
        """Return the share of all cores used by these processes, and by everything including the kernel's network
        work.
        """
        available_s = (time.monotonic() - self._begun_s) * (os.cpu_count() or 1)
        own_s = self._of_processes_s() - self._before_s
        return own_s / available_s, (_busy_s() - self._machine_before_s) / available_s

    def _of_processes_s(self) -> float:
        return sum(map(_used_s, self._pids))


def _used_s(pid: int) -> float:
    try:
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_S


def _busy_s() -> float:
    """Return all processor time except idling and waiting for disks."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / _TICKS_S
