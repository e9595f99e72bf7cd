"""Which rows a sink commits next, and which it prepares again after a failure. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from peacefs.dataflow.model.batches import Batch
from peacefs.protocol.limits import MIB

# Number of prepared bytes that are committed without waiting for the interval.
dataflow_commit_bytes_max: Final = 32 * MIB


@dataclass(frozen=True)
class CommitRule:
    """When a sink commits: after an interval, or as soon as so many rows are prepared."""

    interval_s: float
    rows_max: int


class SinkProgress:
    """Rows that were taken and are not known to be committed.

    Each row is either waiting or prepared. A commit makes all prepared rows durable. After a failure `restart`
    makes all rows waiting again, without those that were committed.
    """

    def __init__(self, committed: int, rule: CommitRule) -> None:
        self.committed = committed
        self._rule = rule
        self._batches: deque[Batch] = deque()
        self._prepared = committed
        self._prepared_bytes = 0
        # When the first prepared row was prepared.
        self._since_s = 0.0
        self._flush = False

    @property
    def last(self) -> int:
        """The number of the last row that was taken."""
        return self._batches[-1].last if self._batches else self.committed

    @property
    def prepared(self) -> int:
        """The number of the last row that is prepared, or committed."""
        return self._prepared

    def put(self, first: int, rows: pa.RecordBatch) -> None:
        assert first == self.last + 1, f"rows from {first} come after row {self.last}"
        self._batches.append(Batch(first, rows))

    def flush(self) -> None:
        """Commit without delay from now on."""
        self._flush = True

    def prepare(self, now_s: float) -> Batch | None:
        """Return the next rows to prepare; None if there are none, or if the prepared rows are enough."""
        if self._is_full():
            return None
        found = next((batch for batch in self._batches if batch.last > self._prepared), None)
        if found is None:
            return None
        if self._prepared == self.committed:
            self._since_s = now_s
        self._prepared = found.last
        self._prepared_bytes += found.bytes
        return found

    def due_s(self, now_s: float) -> float | None:
        """Return how long to wait before the next commit; None if nothing is prepared."""
        if self._prepared == self.committed:
            return None
        if self._flush or self._is_full():
            return 0.0
        return max(self._since_s + self._rule.interval_s - now_s, 0.0)

    def commit(self) -> None:
        """Mark all prepared rows as committed."""
        self.restart(self._prepared)

    def restart(self, committed: int) -> None:
        """Set the last committed row. All rows after it wait to be prepared again."""
        assert committed >= self.committed, f"row {self.committed} was committed, and now only {committed} are"
        self.committed = self._prepared = committed
        self._prepared_bytes = 0
        while self._batches and self._batches[0].last <= committed:
            self._batches.popleft()
        if self._batches and (rest := self._batches[0].after(committed)) is not None:
            self._batches[0] = rest

    def _is_full(self) -> bool:
        prepared = self._prepared - self.committed
        return prepared >= self._rule.rows_max or self._prepared_bytes >= dataflow_commit_bytes_max
