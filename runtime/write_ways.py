"""Chooses for each disk whether large files are written through the page cache or around it. No I/O.

Both ways are measured: the time that a file's appends and its sync take per MiB. Most files are written in the way
that was faster lately. One in `tried_every` is written in the other way, to notice changes. Which way is faster
depends on the machine: in a virtual machine that returns free memory to its host, the first use of a page takes
many times longer than copying it.

The page cache is preferred, because data written around it must be read back from the disk. So writing around it
must be clearly faster. Files that are written at the same time share the disk, so their times are divided by their
number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import Final, NamedTuple

from peacefs.protocol.limits import MIB

# One in this many files is written in the way that was slower.
tried_every: Final = 16
# Smaller files are not measured, because their times vary too much.
measured_bytes_min: Final = 4 * MIB
#: Begin to write around the cache if that takes less than the first share of the time through it. Stop when it
#: takes more than the second share.
_CLEARLY_FASTER: Final = 0.8
_FASTER: Final = 0.9
#: The times are smoothed over about this many files.
_SMOOTHED_OVER: Final = 3
#: Before the first choice, measure each way this often, alternately.
_AT_FIRST: Final = 2


@dataclass(slots=True, eq=False)
class Trial:
    """A file that is being written, and the time that its writes have taken so far."""

    disk: int
    directory: str
    is_around: bool
    spent_s: float = 0.0
    is_over: bool = False
    #: Maximum number of files that were being written to the disk at the same time.
    at_once: int = 1


class Chosen(NamedTuple):
    """A disk's new way of writing, and the measured seconds per MiB that decided it."""

    is_around: bool
    through_s: float
    around_s: float


@dataclass(slots=True)
class _Disk:
    #: Smoothed seconds per MiB, and the number of measured files: through the cache, then around it.
    per_mib_s: list[float] = field(default_factory=lambda: [0.0, 0.0])
    measured: list[int] = field(default_factory=lambda: [0, 0])
    goes_around: bool = False
    has_around: bool = True
    begun: int = 0
    under_way: set[Trial] = field(default_factory=set)


class WriteWays:
    """Chooses the way of writing for all disks of a process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._disks: dict[int, _Disk] = {}

    def begin(self, disk: int, directory: str) -> Trial:
        """Choose how the next file on a disk is written. `directory` is for messages."""
        with self._lock:
            state = self._disks.setdefault(disk, _Disk())
            trial = Trial(disk, directory, state.has_around and self._next_is_around(state))
            state.begun += 1
            state.under_way.add(trial)
            for other in state.under_way:
                other.at_once = max(other.at_once, len(state.under_way))
            return trial

    def _next_is_around(self, state: _Disk) -> bool:
        if min(state.measured) < _AT_FIRST:
            return state.begun % 2 == 1
        return state.goes_around is not (state.begun % tried_every == 0)

    def has_no_around(self, trial: Trial) -> None:
        """Record that this file's file system does not support writes around the cache."""
        with self._lock:
            self._disks[trial.disk].has_around = trial.is_around = False

    def written(self, trial: Trial, size: int) -> Chosen | None:
        """Record that a file is complete. Return the new choice if the disk's way of writing changes."""
        with self._lock:
            state = self._disks[trial.disk]
            state.under_way.discard(trial)
            was_over, trial.is_over = trial.is_over, True
            if was_over or size < measured_bytes_min:
                return None
            way = int(trial.is_around)
            took_s = trial.spent_s / (size / MIB) / trial.at_once
            state.measured[way] += 1
            share = 1 / min(state.measured[way], _SMOOTHED_OVER)
            state.per_mib_s[way] += (took_s - state.per_mib_s[way]) * share
            through_s, around_s = state.per_mib_s
            limit = _FASTER if state.goes_around else _CLEARLY_FASTER
            goes_around = min(state.measured) >= _AT_FIRST and around_s < limit * through_s
            if goes_around is state.goes_around:
                return None
            state.goes_around = goes_around
            return Chosen(goes_around, through_s, around_s)

    def given_up(self, trial: Trial) -> None:
        """Record that a file will not be completed. Does nothing if it is complete."""
        with self._lock:
            trial.is_over = True
            self._disks[trial.disk].under_way.discard(trial)
