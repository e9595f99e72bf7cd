"""Decides whether the reactor's thread operates on the disk itself, or leaves that to a worker. No I/O.

Handing over to a worker and back costs a request two changes of threads. That is worth it only if another request
would otherwise wait behind a slow disk. So a disk that is not very slow is left to workers only while requests
come together.
"""

from __future__ import annotations

from typing import Final

# The reactor's thread operates on the disk itself if recent operations took less than `quick_disk_s`, or less than
# `bearable_disk_s` while requests come one at a time.
quick_disk_s: Final = 0.001
bearable_disk_s: Final = 0.01
#: The disk's recent time is smoothed over about this many operations, the number of requests over as many syncs.
_SMOOTHED_OVER: Final = 8
#: Requests come one at a time if recently fewer than this came between two syncs.
_ALONE: Final = 1.2


class DiskTurns:
    """What a reactor has lately seen of its disks and its requests. Threads may use it without a lock.

    A race of two threads loses one sample, which does not matter.
    """

    def __init__(self) -> None:
        self._disk_s = 0.0
        #: Number of requests since the last sync, and their smoothed number between two syncs.
        self._arrived = 0
        self._crowd = 0.0

    def arrived(self, requests: int) -> None:
        self._arrived += requests

    def syncs(self) -> None:
        """Record that a sync begins."""
        self._crowd += (self._arrived - self._crowd) / _SMOOTHED_OVER
        self._arrived = 0

    def took(self, seconds: float) -> None:
        """Record the time of one operation."""
        self._disk_s += (seconds - self._disk_s) / _SMOOTHED_OVER

    def hangs(self, seconds: float) -> None:
        """Record that an operation takes at least this long. Workers serve until operations are quick again."""
        self._disk_s = seconds

    def belongs_to_worker(self) -> bool:
        """Return whether a worker performs the next operation."""
        is_alone = self._arrived <= 1 and self._crowd < _ALONE
        return self._disk_s > (bearable_disk_s if is_alone else quick_disk_s)
