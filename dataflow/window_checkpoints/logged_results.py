"""The output of a unit that logs it: rows that consumers may request again, and rows that the log lacks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import pyarrow as pa

from peacefs.dataflow.model.batches import Batch


class LoggedResults:
    """Rows of an output that consumers may request again. Some of them are not in the log yet."""

    def __init__(self, loaded: Sequence[Batch], last: int, floor: int) -> None:
        """`last`: the last emitted row. `floor`: the last row that nobody needs."""
        self._held = deque(loaded)
        self.last, self.floor = last, floor
        # The last row that was taken for the log.
        self._taken = last

    def append(self, first: int, rows: pa.RecordBatch) -> None:
        self._held.append(Batch(first, rows))
        self.last = self._held[-1].last

    def drop_before(self, number: int) -> None:
        # Rows that nobody needs are still logged if they are not in the log yet, so that it has no gaps.
        self.floor = max(self.floor, number - 1)
        while self._held and self._held[0].last <= min(self.floor, self._taken):
            self._held.popleft()

    def __iter__(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        return ((batch.first, batch.rows) for batch in self._held)

    def take(self, *, everything: bool) -> list[Batch]:
        """Return the rows for the next commit: those since the last one or, if `everything`, all held rows."""
        after = 0 if everything else self._taken
        self._taken = self.last
        taken: list[Batch] = []
        for batch in reversed(self._held):
            fresh = batch.after(after)
            if fresh is None:
                break
            taken.append(fresh)
        self.drop_before(self.floor + 1)
        return taken[::-1]
