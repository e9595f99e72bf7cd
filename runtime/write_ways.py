"""Chooses for each disk whether large files are written through the page cache or around it. No I/O, no clock.

Both ways are measured: the time that the appends and syncs of files take per MiB. Which way is faster depends on
the machine: in a virtual machine that returns free memory to its host, the first use of a page takes many times
longer than copying it. Most files are written in the way that was faster lately. Now and then one file is written
in the other way, to notice changes; the slower that way was, the less often. If such a trial was faster, the next
files are trials too, until the result is clear.

The page cache is preferred, because data written around it must be read back from the disk. So writing around it
must be clearly faster. Operations that run at the same time share the disk. So while n of them run, 1/n of the
time counts for each.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from threading import Lock
from typing import Final, NamedTuple

from peacefs.protocol.limits import MIB

# The way that was slower is tried for one file in this many, and for fewer if it was much slower. But after
# `tried_after_s` it is tried, however slow it was, if there were `tried_every` files.
tried_every: Final = 16
tried_after_s: Final = 600.0
# A measurement comprises files of at least this size together, because the times of small files vary too much.
measured_bytes_min: Final = 4 * MIB
#: Begin to write around the cache if that takes less than the first share of the time through it. Stop when it
#: takes more than the second share.
_CLEARLY_FASTER: Final = 0.8
_FASTER: Final = 0.9
#: Number of measurements whose median is used, so that one or two slow files change nothing.
_MEDIAN_OF: Final = 5
#: Before the first choice, measure each way this often.
_AT_FIRST: Final = 3


@dataclass(slots=True, eq=False)
class Trial:
    """A file that is being written, and its share of the disk's time so far."""

    disk: int
    directory: str
    is_around: bool
    spent_s: float = 0.0
    is_over: bool = False
    #: The disk's `shared_s` when the operation under way began.
    since_s: float = 0.0


class Chosen(NamedTuple):
    """A disk's way of writing, and the measured seconds per MiB. They are 0 before the first measurement."""

    directory: str
    is_around: bool
    through_s: float
    around_s: float


@dataclass(slots=True)
class _Way:
    #: The last measurements, in seconds per MiB.
    per_mib_s: deque[float] = field(default_factory=lambda: deque(maxlen=_MEDIAN_OF))
    #: What the next measurement comprises so far.
    size: int = 0
    spent_s: float = 0.0

    def add(self, size: int, spent_s: float) -> float | None:
        """Add a file. Return the new measurement if it completes one."""
        self.size += size
        self.spent_s += spent_s
        if self.size < measured_bytes_min:
            return None
        took_s = self.spent_s / (self.size / MIB)
        self.per_mib_s.append(took_s)
        self.size, self.spent_s = 0, 0.0
        return took_s

    @property
    def usual_s(self) -> float:
        return median(self.per_mib_s) if self.per_mib_s else 0.0


@dataclass(slots=True)
class _Disk:
    directory: str
    through: _Way = field(default_factory=_Way)
    around: _Way = field(default_factory=_Way)
    goes_around: bool = False
    has_around: bool = True
    #: Number of files since the slower way was last tried, and the time of that trial.
    files: int = 0
    tried_s: float = 0.0
    #: True if the next file is a trial, too, because the last trial was the faster one.
    is_surprised: bool = False
    #: Number of running operations, and the share of the disk's time that an operation would have used if it had
    #: run all the time until `looked_s`.
    active: int = 0
    shared_s: float = 0.0
    looked_s: float = 0.0

    def share(self, now_s: float) -> float:
        """Return `shared_s`, brought up to date."""
        if self.active:
            self.shared_s += (now_s - self.looked_s) / self.active
        self.looked_s = now_s
        return self.shared_s

    @property
    def is_measured(self) -> bool:
        return min(len(self.through.per_mib_s), len(self.around.per_mib_s)) >= _AT_FIRST

    def tries_other(self, now_s: float) -> bool:
        """Return whether the next file is to be written in the slower way."""
        if self.files < tried_every:
            return self.is_surprised
        times_s = self.through.usual_s, self.around.usual_s
        is_due = self.files * min(times_s) >= tried_every * max(times_s)
        return is_due or now_s - self.tried_s >= tried_after_s

    def should_go_around(self, through_s: float, around_s: float) -> bool:
        return around_s < (_FASTER if self.goes_around else _CLEARLY_FASTER) * through_s

    def state(self) -> Chosen:
        return Chosen(self.directory, self.goes_around, self.through.usual_s, self.around.usual_s)


class WriteWays:
    """Chooses the way of writing for all disks of a process. Thread-safe; `now_s` is monotonic.

    For each file call `begin`, then `works` and `rests` around each of its operations, and at last `written` or
    `given_up`.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._disks: dict[int, _Disk] = {}

    def begin(self, disk: int, directory: str, now_s: float) -> Trial:
        """Choose how the next file on a disk is written. `directory` is for messages."""
        with self._lock:
            state = self._disks.setdefault(disk, _Disk(directory, tried_s=now_s))
            return Trial(disk, directory, state.has_around and self._next_is_around(state, now_s))

    def _next_is_around(self, state: _Disk, now_s: float) -> bool:
        state.files += 1
        if not state.is_measured:
            through, around = len(state.through.per_mib_s), len(state.around.per_mib_s)
            # The first file of each way may be given up, so they take turns.
            return around < through if around != through else state.files % 2 == 0
        if not state.tries_other(now_s):
            return state.goes_around
        state.files, state.tried_s, state.is_surprised = 0, now_s, False
        return not state.goes_around

    def has_no_around(self, trial: Trial) -> None:
        """Record that this file's file system does not support writes around the cache."""
        with self._lock:
            state = self._disks[trial.disk]
            state.has_around = state.goes_around = trial.is_around = False

    def works(self, trial: Trial, now_s: float) -> None:
        """Record that an append or a sync of a file begins."""
        with self._lock:
            state = self._disks[trial.disk]
            trial.since_s = state.share(now_s)
            state.active += 1

    def rests(self, trial: Trial, now_s: float) -> None:
        """Record that it has ended, also if it failed."""
        with self._lock:
            state = self._disks[trial.disk]
            trial.spent_s += state.share(now_s) - trial.since_s
            state.active -= 1

    def written(self, trial: Trial, size: int) -> Chosen | None:
        """Record that a file is complete. Return the new choice if the disk's way of writing changes."""
        with self._lock:
            state = self._disks[trial.disk]
            was_over, trial.is_over = trial.is_over, True
            if was_over or not state.has_around:
                return None
            took_s = (state.around if trial.is_around else state.through).add(size, trial.spent_s)
            if took_s is not None and trial.is_around is not state.goes_around:
                times_s = (state.through.usual_s, took_s) if trial.is_around else (took_s, state.around.usual_s)
                state.is_surprised = state.should_go_around(*times_s) is not state.goes_around
            goes_around = state.is_measured and state.should_go_around(state.through.usual_s, state.around.usual_s)
            if goes_around is state.goes_around:
                return None
            # The other way may have been left because of a few slow files, so try it again at once.
            state.goes_around, state.files, state.is_surprised = goes_around, 0, True
            return state.state()

    def given_up(self, trial: Trial) -> None:
        """Record that a file will not be completed. Does nothing if it is complete."""
        trial.is_over = True

    def states(self) -> list[Chosen]:
        """Return how each disk is written now."""
        with self._lock:
            return [state.state() for state in self._disks.values()]
