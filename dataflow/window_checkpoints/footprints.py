"""The footprints of open windows: which commit each would be loaded from (the list by tau_2 of CEC, III)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from peacefs.dataflow.unit_state.interface import Accumulator, Groups
from peacefs.protocol.limits import cec_entries_tidied_min

from .control_tuples import BUCKET

NEWEST = "newest commit"
#: The accumulator of a map from windows to commits: a number that is put and found, and never added to.
COMMIT_OF_WINDOW = Accumulator(NEWEST, "rows", pa.int64())
#: Stands in such a map for a window that has closed. Its key stays for a while, since it is soon open again.
_CLOSED = 0


def by_bucket(ids: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield windows pane by pane, without the column that names it."""
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
    def __init__(self, commits: Groups) -> None:
        """`commits`: an empty map with `COMMIT_OF_WINDOW`."""
        self._commits = commits
        #: bucket -> commit -> windows whose footprint it is
        self._live: dict[int, Counter[int]] = {}
        self._queue: deque[tuple[int, pa.Table]] = deque()
        self._tidy_at = cec_entries_tidied_min
        self.open_windows = 0

    @property
    def oldest(self) -> int | None:
        """The commit of the oldest footprint that counts; None if no window is open."""
        self._forget_gone()
        return self._queue[0][0] if self._queue else None

    def put(self, ids: pa.Table, commit: int) -> None:
        """Learn that windows, each once, have a footprint in a commit, the latest of all."""
        if not ids.num_rows:
            return
        for bucket, part in by_bucket(ids):
            self._replace(bucket, part)
            self._mark(bucket, part, commit)
            self._live.setdefault(bucket, Counter())[commit] += part.num_rows
            self.open_windows += part.num_rows
        self._queue.append((commit, ids))
        if len(self._queue) >= self._tidy_at:
            # Footprints that do not count any more stand between those of slow windows.
            self._queue = deque(entry for entry in self._queue if self._is_live(entry[0]))
            self._tidy_at = 2 * len(self._queue) + cec_entries_tidied_min

    def remove(self, ids: pa.Table) -> pa.Table:
        """Learn that windows, each once, have closed; return those that had a footprint."""
        gone = []
        for bucket, part in by_bucket(ids):
            had = self._replace(bucket, part)
            if had.any():
                removed = part.filter(pa.array(had))
                self._mark(bucket, removed, _CLOSED)
                self._drop_closed(bucket)
                gone.append(removed)
        return pa.concat_tables(gone) if gone else ids.slice(0, 0)

    def drop_before(self, bucket: int) -> None:
        """Learn that all windows of earlier panes have closed."""
        for over in [number for number in self._live if number < bucket]:
            self.open_windows -= self._live.pop(over).total()
        self._commits.drop_before(bucket)

    def clear(self) -> None:
        """Forget all windows."""
        self._commits.clear()
        self._live.clear()
        self._queue.clear()
        self.open_windows = 0

    def without(self, bucket: int, ids: pa.Table) -> pa.Table:
        """Return the windows of a pane that have no footprint."""
        return ids.filter(pa.array(self._found(bucket, ids) == _CLOSED))

    def take_oldest(self, count: int) -> tuple[int, pa.Table] | None:
        """Return up to `count` windows, and a few more, with the oldest footprints, and those' commit.

        They are to be given to `put` anew.
        """
        while True:
            self._forget_gone()
            if not self._queue:
                return None
            commit, ids = self._queue.popleft()
            if ids.num_rows > count:
                self._queue.appendleft((commit, ids.slice(count)))
                ids = ids.slice(0, count)
            still = [
                part.filter(pa.array(self._found(bucket, part) == commit))
                for bucket, part in by_bucket(ids)
                if bucket in self._live
            ]
            found = pa.concat_tables(still) if still else ids.slice(0, 0)
            if found.num_rows:
                return commit, found

    def put_back(self, commit: int, ids: pa.Table) -> None:
        self._queue.appendleft((commit, ids))

    def _replace(self, bucket: int, ids: pa.Table) -> NDArray[np.bool_]:
        """Let the footprints of windows not count any more; return which had one."""
        if bucket not in self._live:
            return np.zeros(ids.num_rows, np.bool_)
        before = self._found(bucket, ids)
        had: NDArray[np.bool_] = before != _CLOSED
        commits, counts = np.unique(before[had], return_counts=True)
        live = self._live[bucket]
        for commit, number in zip(commits.tolist(), counts.tolist(), strict=True):
            live[commit] -= number
            if not live[commit]:
                del live[commit]
            self.open_windows -= number
        return had

    def _found(self, bucket: int, ids: pa.Table) -> NDArray[np.int64]:
        found = self._commits.find(bucket, ids).column(NEWEST)
        commits: NDArray[np.int64] = compute.fill_null(found, _CLOSED).to_numpy()
        return commits

    def _mark(self, bucket: int, ids: pa.Table, commit: int) -> None:
        marked = ids.append_column(NEWEST, pa.array(np.full(ids.num_rows, commit)))
        for rows in marked.combine_chunks().to_batches():
            self._commits.put(bucket, rows)

    def _drop_closed(self, bucket: int) -> None:
        """Take windows out that have closed, once they are most of those that are there."""
        if self._commits.size(bucket) > 2 * self._live[bucket].total() + cec_entries_tidied_min:
            there = self._commits.between(bucket, bucket + 1)
            self._commits.remove(bucket, there.filter(compute.equal(there.column(NEWEST), _CLOSED)))

    def _forget_gone(self) -> None:
        while self._queue and not self._is_live(self._queue[0][0]):
            self._queue.popleft()

    def _is_live(self, commit: int) -> bool:
        return any(commit in live for live in self._live.values())
