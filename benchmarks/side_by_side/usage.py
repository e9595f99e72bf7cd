"""Processor time, memory and loopback bytes of all processes that this program started."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processor_time import cpu_s

_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_UP_AND_RUNNING = 0x41
_NETWORK = "/proc/thread-self/ns/net"


@contextlib.contextmanager
def own_network() -> Iterator[bool]:
    """Give this thread and its later child processes a loopback of their own, if permitted.

    Only then do its counters belong to one run, whatever else the machine does. Yield whether it succeeded.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open(_NETWORK, os.O_RDONLY)
    try:
        alone = libc.unshare(_CLONE_NEWNET) == 0
        if alone:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
                fcntl.ioctl(device, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _UP_AND_RUNNING))
        yield alone
        if alone and libc.setns(before, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "the network of before cannot be entered again")
    finally:
        os.close(before)


def loopback_bytes() -> int:
    """Return the bytes sent over loopback so far, including TCP's headers."""
    lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
    return next(int(line.split(":")[1].split()[8]) for line in lines if line.lstrip().startswith("lo:"))


def descendants(pid: int, but: Collection[int] = ()) -> list[int]:
    """Return a process's descendants, except `but` and the descendants of `but`."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        mine = [child for child in children.get(waiting.pop(), []) if child not in but]
        found += mine
        waiting += mine
    return found


def memory_bytes(pids: Collection[int]) -> int:
    """Return the memory of processes. Shared pages count once in total."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += next(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total


@dataclass(frozen=True)
class Reading:
    """Costs up to some moment: rows given, processor time of this program and its processes, bytes."""

    rows: int
    processor_s: float
    bytes: int

    @classmethod
    def now(cls, rows: int) -> Reading:
        spent_s = 0.0
        for pid in (os.getpid(), *descendants(os.getpid())):
            with contextlib.suppress(OSError):
                spent_s += cpu_s(pid)
        return cls(rows, spent_s, loopback_bytes())


@dataclass(frozen=True)
class Usage:
    """Processor time and bytes per row of the source, and the memory of nodes."""

    processor_us: float
    link_bytes: float
    memory_bytes: int

    @classmethod
    def between(cls, first: Reading, last: Reading, memory: int) -> Usage:
        rows = last.rows - first.rows
        return cls(1e6 * (last.processor_s - first.processor_s) / rows, (last.bytes - first.bytes) / rows, memory)
