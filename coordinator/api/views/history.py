"""The history of the cluster over the last day: throughput, latency and space, in bounded memory. Pure.

One sample a minute is kept for a day. Each is about the minute before it. Nothing survives a restart.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

import msgspec

history_interval_s: Final = 60.0
history_samples_max: Final = 24 * 60


class Totals(NamedTuple):
    """Counters since the coordinator's start, and the space now. Bytes published count once, not per replica."""

    published_bytes: int
    changes: int
    commits: int
    commits_s: float
    used_bytes: int
    capacity_bytes: int


class HistorySample(msgspec.Struct, frozen=True):
    """One minute. `commit_ms` is the mean duration of a commit of names; None if nothing was committed."""

    at_ms: int
    bytes_per_s: float
    changes_per_s: float
    commit_ms: float | None
    used_bytes: int
    capacity_bytes: int


class History(msgspec.Struct, frozen=True):
    """The samples, the oldest first, and how far they are apart."""

    interval_s: float
    samples: list[HistorySample]


class HistoryRecorder:
    """Makes samples of totals that are passed in with the time."""

    def __init__(self) -> None:
        self._samples: deque[HistorySample] = deque(maxlen=history_samples_max)
        self._before: tuple[float, Totals] | None = None

    def record(self, now_s: float, at_ms: int, totals: Totals) -> None:
        """Take in the totals. The first call only begins the first minute."""
        before, self._before = self._before, (now_s, totals)
        if before is None or now_s <= before[0]:
            return
        elapsed_s, earlier = now_s - before[0], before[1]
        commits = totals.commits - earlier.commits
        commit_ms = round(1000 * (totals.commits_s - earlier.commits_s) / commits, 2) if commits else None
        self._samples.append(
            HistorySample(
                at_ms,
                round((totals.published_bytes - earlier.published_bytes) / elapsed_s, 1),
                round((totals.changes - earlier.changes) / elapsed_s, 2),
                commit_ms,
                totals.used_bytes,
                totals.capacity_bytes,
            )
        )

    def view(self) -> History:
        return History(history_interval_s, list(self._samples))
