"""The footprints of open windows: the commit to load each window from (the list by tau_2 of CEC, III).

They are counted here, and listed oldest first. Windows that close one by one are not removed from the list: the
commit of each is stored beside its state, where `contents.py` finds it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from peacefs.dataflow.unit_state.interface import Accumulator

from .control_tuples import BUCKET

cec_entries_tidied_min: Final = 256


NEWEST = "newest commit"
#: The accumulator of a map from windows to commits. 0 if a window has no footprint.
COMMIT_OF_WINDOW = Accumulator(NEWEST, "noted", pa.int64())


def by_bucket(ids: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield the windows of each pane, with the pane's number."""
    buckets = ids.column(BUCKET).to_numpy()
    if not len(buckets):
        return
    first = int(buckets[0])
    if (buckets == first).all():
        yield first, ids
        return
    for bucket in np.unique(buckets):
        yield int(bucket), ids.filter(pa.array(buckets == bucket))


class Footprints:
    def __init__(self) -> None:
        #: bucket -> commit -> number of windows that have their footprints there
        self._live: dict[int, Counter[int]] = {}
        #: For each commit, the windows that had their footprints there. Some of them may have closed since.
        self._queue: deque[tuple[int, pa.Table]] = deque()
        self._tidy_at = cec_entries_tidied_min
        self.open_windows = 0

    @property
    def oldest(self) -> int | None:
        """The commit of the oldest footprint that counts; None if no window is open."""
        self._forget_gone()
        return self._queue[0][0] if self._queue else None

    def put(self, ids: pa.Table, commit: int) -> None:
        """Add distinct windows without footprints. Their footprints are in `commit`, which must be the latest."""
        if not ids.num_rows:
            return
        for bucket, count in _counted(ids.column(BUCKET).to_numpy()):
            self._live.setdefault(bucket, Counter())[commit] += count
        self.open_windows += ids.num_rows
        self._queue.append((commit, ids))
        if len(self._queue) >= self._tidy_at:
            # Remove footprints that no longer count from between those of slow windows.
            self._queue = deque(entry for entry in self._queue if self._is_live(entry[0]))
            self._tidy_at = 2 * len(self._queue) + cec_entries_tidied_min

    def remove(self, bucket: int, commits: NDArray[np.int64]) -> None:
        """Remove footprints of windows of one bucket, one for each of `commits`."""
        for commit, count in _counted(commits):
            self._leave(bucket, commit, count)

    def check(self, ids: pa.Table, oldest: int, commit: int) -> None:
        """Move the footprints of windows that were taken off the list to a later commit."""
        for bucket, count in _counted(ids.column(BUCKET).to_numpy()):
            self._leave(bucket, oldest, count)
        self.put(ids, commit)

    def drop_before(self, bucket: int) -> None:
        """Remove all windows of panes below `bucket`, which have closed."""
        for over in [number for number in self._live if number < bucket]:
            self.open_windows -= self._live.pop(over).total()

    def clear(self) -> None:
        """Forget all windows."""
        self._live.clear()
        self._queue.clear()
        self.open_windows = 0

    def take_oldest(self, count: int) -> tuple[int, pa.Table] | None:
        """Take up to `count` windows with the oldest footprints off the list, and return them with their commit.

        If windows close one by one, some may have closed or have a later footprint. The caller must return the
        others with `put_back` or `check`.
        """
        while True:
            self._forget_gone()
            if not self._queue:
                return None
            commit, ids = self._queue.popleft()
            if ids.num_rows > count:
                self._queue.appendleft((commit, ids.slice(count)))
                ids = ids.slice(0, count)
            here = [part for bucket, part in by_bucket(ids) if bucket in self._live]
            if here:
                return commit, pa.concat_tables(here)

    def put_back(self, commit: int, ids: pa.Table) -> None:
        self._queue.appendleft((commit, ids))

    def _leave(self, bucket: int, commit: int, count: int) -> None:
        live = self._live[bucket]
        live[commit] -= count
        if not live[commit]:
            del live[commit]
        self.open_windows -= count

    def _forget_gone(self) -> None:
        while self._queue and not self._is_live(self._queue[0][0]):
            self._queue.popleft()

    def _is_live(self, commit: int) -> bool:
        return any(commit in live for live in self._live.values())


def _counted(numbers: NDArray[np.int64]) -> Iterable[tuple[int, int]]:
    """Return each distinct number with its count."""
    found, counts = np.unique(numbers, return_counts=True)
    return zip(found.tolist(), counts.tolist(), strict=True)
