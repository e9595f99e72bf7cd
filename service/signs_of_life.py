"""Distinguishes a slow process from a hung one, by its progress, its output and its CPU time.

`SignsOfLife` is pure: the caller passes the time and its observations. `processor_s` and `session_processor_s`
observe processes.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

# A process that uses less CPU than this is idle, such as a JVM whose query hangs.
idle_processor_fraction: Final = 0.02


_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class SignsOfLife:
    """Decides how long to wait for a process or a group of processes.

    The process is given up after `silence_s` without progress, output and more CPU time than an idle process
    needs; and always after `longest_s` without progress.
    """

    def __init__(self, now_s: float, *, silence_s: float, longest_s: float) -> None:
        self._silence_s = silence_s
        self._longest_s = longest_s
        self._progressed_s = self._lived_s = now_s
        self._processor_s = 0.0
        self._said_bytes = 0

    def progressed(self, now_s: float) -> None:
        """Note progress towards the awaited result."""
        self._progressed_s = self._lived_s = now_s

    def seen(self, now_s: float, *, processor_s: float, said_bytes: int = 0) -> None:
        """Note the CPU time and log length so far. Smaller values than before mean that the process was
        restarted.
        """
        used_s, said = processor_s - self._processor_s, said_bytes - self._said_bytes
        if said != 0 or used_s < 0 or used_s >= idle_processor_fraction * self._silence_s:
            self._lived_s = now_s
        if self._lived_s == now_s:
            self._processor_s, self._said_bytes = processor_s, said_bytes

    def is_given_up(self, now_s: float) -> bool:
        return now_s - self._lived_s >= self._silence_s or now_s - self._progressed_s >= self._longest_s


def processor_s(pid: int) -> float:
    """Return the CPU time that a process has used and waited for; 0 if the process does not exist.

    Waiting counts, because on a busy machine a process with work to do gets little CPU time.
    """
    fields = _stat(Path("/proc") / str(pid))
    return 0.0 if fields is None else _used_s(fields) + _waited_s(Path("/proc") / str(pid))


def session_processor_s(session: int) -> float:
    """Return the CPU time used and waited for by all processes of a session, and used by their ended children."""
    total_s = 0.0
    for path in Path("/proc").iterdir():
        fields = _stat(path) if path.name.isdigit() else None
        if fields is not None and int(fields[3]) == session:
            total_s += _used_s(fields) + sum(map(int, fields[13:15])) / _TICKS_A_SECOND + _waited_s(path)
    return total_s


def _stat(process: Path) -> list[str] | None:
    """Return the fields after the name: state, parent, group, session, ... (proc_pid_stat(5))."""
    with contextlib.suppress(OSError):
        return (process / "stat").read_text().rpartition(")")[2].split()
    return None


def _used_s(fields: list[str]) -> float:
    return sum(map(int, fields[11:13])) / _TICKS_A_SECOND


def _waited_s(process: Path) -> float:
    """Return how long its threads have waited for a CPU, if the kernel reports it (proc(5), schedstat)."""
    waited_ns = 0
    with contextlib.suppress(OSError):
        for thread in (process / "task").iterdir():
            with contextlib.suppress(OSError, IndexError):
                waited_ns += int((thread / "schedstat").read_text().split()[1])
    return waited_ns / 1e9
