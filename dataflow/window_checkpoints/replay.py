"""A replay: rows that a unit processed before it failed, and that its windows have seen entirely or in part.

Producers send rows again from the oldest footprint on. Each window has seen the rows up to the commit of its own
footprint, and skips them. Output made during the replay was already emitted, and is dropped. Batches are cut at
the places of commits, so that a window has seen either all or none of a batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from peacefs.dataflow.unit_state.interface import Groups

from .control_tuples import CommitPlace, Inputs
from .footprints import NEWEST, by_bucket


class Replay:
    def __init__(self, since: CommitPlace, commits: Sequence[tuple[int, Inputs]], loaded: pa.Table | None) -> None:
        """Create the replay. `commits` are those after `since`, in order; the replay ends at the last.

        `loaded`: the rows of the footprints of open windows.
        """
        self._numbers = [number for number, _ in commits]
        self._places: dict[str, list[int]] = {
            stream: [inputs[stream][1] for _, inputs in commits] for stream in since.inputs
        }
        self._goal: Inputs = commits[-1][1] if commits else since.inputs
        self._reached = {stream: (number, ended) for stream, (_, number, ended) in since.inputs.items()}
        self._current: tuple[str, int, bool] | None = None
        self._commit = 0
        self.loaded = loaded
        #: The commit that each window has seen, whether the window is open or has closed.
        self.seen: Groups | None = None
        self.over = self._is_over()

    def remember(self, seen: pa.Table, groups: Groups) -> None:
        """Set the commit that each window has seen. `groups`: an empty map with `COMMIT_OF_WINDOW`."""
        for bucket, part in by_bucket(seen):
            for rows in part.combine_chunks().to_batches():
                groups.put(bucket, rows)
        self.seen = groups

    def cuts(self, stream: str) -> Sequence[int]:
        """Return the numbers of the rows after which a batch must be cut."""
        return self._places[stream]

    def enter(self, stream: str, number: int, *, ended: bool) -> None:
        """Note that rows of a stream up to `number`, or its end, are processed now. Earlier ones are done."""
        self.settle()
        if self.over:
            return
        self._current = (stream, number, ended)
        places = self._places[stream]
        at = bisect_left(places, number)
        # Nothing after the last commit was seen.
        self._commit = self._numbers[at] if at < len(places) else self._numbers[-1] + 1

    def settle(self) -> None:
        """Note that the rows of the last `enter` were processed."""
        if self._current is not None:
            stream, number, ended = self._current
            self._reached[stream] = (max(number, self._reached[stream][0]), ended)
            self._current = None
            self.over = self._is_over()
            if self.over:
                self.seen = self.loaded = None

    def holds(self, stream: str, number: int) -> bool:
        """Return True if a row must wait: it is not part of the replay, and the replay is not over."""
        self.settle()
        return not self.over and number > int(self._goal[stream][1])

    def holds_end(self, stream: str) -> bool:
        """Return True if the end of a stream must wait."""
        self.settle()
        return not self.over and not self._goal[stream][2]

    def fresh(self, bucket: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that their windows have not seen."""
        if self.over or self.seen is None or not rows.num_rows:
            return rows
        seen = self.seen.find(bucket, pa.Table.from_batches([rows])).column(NEWEST)
        kept = compute.less(compute.fill_null(seen, 0), self._commit)
        return rows.filter(kept.combine_chunks())

    def _is_over(self) -> bool:
        return all(
            self._reached[stream][0] >= int(number) and (self._reached[stream][1] or not ended)
            for stream, (_, number, ended) in self._goal.items()
        )


def newest_rows(rows: pa.Table, ids: Sequence[str], commit: str) -> pa.Table:
    """Return the rows of each window that belong to the window's newest commit."""
    commits = rows.column(commit).to_numpy()
    if not len(commits) or (commits == commits[0]).all():
        return rows
    codes = codes_of(rows, ids)
    newest = np.zeros(int(codes.max()) + 1, np.int64)
    np.maximum.at(newest, codes, commits)
    return rows.filter(pa.array(commits == newest[codes]))


def codes_of(rows: pa.Table, columns: Sequence[str]) -> Any:
    """Return a number for each row, equal for rows with equal values in `columns`."""
    codes: Any = np.zeros(rows.num_rows, np.int64)
    for name in columns:
        encoded = rows.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        found = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        _, codes = np.unique(codes * (len(encoded.dictionary) + 1) + found, return_inverse=True)
    return codes
