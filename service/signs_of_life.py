"""Tells slow from broken: a process that still gets something done is waited for, however busy its machine is.

The judgement is pure: `now_s` and what was seen come in. `processor_s` below it is what is seen of processes.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

# A process that uses less of a processor has nothing to do: a JVM, say, whose query hangs.
idle_processor_fraction: Final = 0.02


_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class SignsOfLife:
    """The signs of life of one process, or of a group of them, for somebody who waits.

    It is given up when for `silence_s` it has neither brought anything about, nor said anything, nor wanted more
    of a processor than an idle process does; and in any case when for `longest_s` it has brought nothing about.
    """

    def __init__(self, now_s: float, *, silence_s: float, longest_s: float) -> None:
        self._silence_s = silence_s
        self._longest_s = longest_s
        self._progressed_s = self._lived_s = now_s
        self._processor_s = 0.0
        self._said_bytes = 0

    def progressed(self, now_s: float) -> None:
        """Note that the awaited result has come nearer."""
        self._progressed_s = self._lived_s = now_s

    def seen(self, now_s: float, *, processor_s: float, said_bytes: int = 0) -> None:
        """Return its processor time and the length of its log; less than before after a restart."""
        used_s, said = processor_s - self._processor_s, said_bytes - self._said_bytes
        if said != 0 or used_s < 0 or used_s >= idle_processor_fraction * self._silence_s:
            self._lived_s = now_s
        if self._lived_s == now_s:
            self._processor_s, self._said_bytes = processor_s, said_bytes

    def is_given_up(self, now_s: float) -> bool:
        """Return whether to wait no longer."""
        return now_s - self._lived_s >= self._silence_s or now_s - self._progressed_s >= self._longest_s


def processor_s(pid: int) -> float:
    """Return the processor time that a process has used and waited for; 0 when there is none.

    What waits for a processor has something to do: on a busy machine it gets little of what it wants.
    """
    fields = _stat(Path("/proc") / str(pid))
    return 0.0 if fields is None else _used_s(fields) + _waited_s(Path("/proc") / str(pid))


def session_processor_s(session: int) -> float:
    """Return the same for all processes of a session, with what children have used that have ended."""
    total_s = 0.0
    for path in Path("/proc").iterdir():
        fields = _stat(path) if path.name.isdigit() else None
        if fields is not None and int(fields[3]) == session:
            total_s += _used_s(fields) + sum(map(int, fields[13:15])) / _TICKS_A_SECOND + _waited_s(path)
    return total_s


def _stat(process: Path) -> list[str] | None:
    """The fields after the name: state, parent, group, session, ... (proc_pid_stat(5))."""
    with contextlib.suppress(OSError):
        return (process / "stat").read_text().rpartition(")")[2].split()
    return None


def _used_s(fields: list[str]) -> float:
    return sum(map(int, fields[11:13])) / _TICKS_A_SECOND


def _waited_s(process: Path) -> float:
    """Return how long its threads have waited for a processor, if the kernel reports it (proc(5), schedstat)."""
    waited_ns = 0
    with contextlib.suppress(OSError):
        for thread in (process / "task").iterdir():
            with contextlib.suppress(OSError, IndexError):
                waited_ns += int((thread / "schedstat").read_text().split()[1])
    return waited_ns / 1e9
