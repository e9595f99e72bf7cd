"""Windows of time, by key. Each pane of a key is open until the last window that contains it closes.

A key opens a window when it is new in a pane, and all windows of a pane close together. So each open window is in
one list of footprints, and no look-up is needed to find that list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from peacefs.dataflow.model.operator import Operator
from peacefs.dataflow.operators.time_windows import AggregateTimeWindows
from peacefs.dataflow.unit_state.interface import Accumulator, Groups, RowQueue

from .contents import EARLIEST_BUCKET, WatchedGroups, WindowChanges
from .control_tuples import BUCKET, STATE
from .footprints import by_bucket
from .replay import Replay


class TimeContents:
    def __init__(self, of: AggregateTimeWindows) -> None:
        self._keys = list(of.keys)
        self._panes: Groups
        self._replay: Replay | None = None
        #: The distinct windows that have opened since the last commit, by pane.
        self._opened: list[tuple[int, pa.Table]] = []
        self.closed_before = EARLIEST_BUCKET
        self.ids = self.state = pa.schema([])

    def begin(self, replay: Replay) -> None:
        self._replay = replay

    def accumulators(self, name: str, wanted: Sequence[Accumulator]) -> Sequence[Accumulator]:
        return wanted

    def groups(self, name: str, inner: Groups, keys: pa.Schema, accumulators: Sequence[Accumulator]) -> Groups:
        assert name == "panes"
        self._panes = inner
        self.ids = pa.schema([pa.field(BUCKET, pa.int64()), *keys])
        names = [each.name for each in accumulators]
        self.state = pa.schema([pa.field(STATE + each.name, each.type) for each in accumulators])
        if self._replay is not None and self._replay.loaded is not None:
            for bucket, part in by_bucket(self._replay.loaded):
                kept = part.select([*self._keys, *(STATE + name for name in names)])
                for rows in kept.rename_columns([*self._keys, *names]).combine_chunks().to_batches():
                    inner.put(bucket, rows)
        return _Panes(inner, self)

    def rows(self, name: str, inner: RowQueue) -> RowQueue:
        return inner

    def watch(self, operator: Operator) -> Operator:
        return operator

    def changes(self, commit: int) -> WindowChanges:
        opened, self._opened = self._opened, []
        here = [ids for bucket, ids in opened if bucket >= self.closed_before]
        ids = pa.concat_tables([self.ids.empty_table(), *here])
        return WindowChanges(ids, self.check(ids, commit), self.ids.empty_table(), np.zeros(0, np.int64))

    def all(self, commit: int) -> tuple[pa.Table, pa.Table]:
        self._opened.clear()
        parts = [pa.schema([*self.ids, *self.state]).empty_table()]
        for bucket in self._panes.buckets():
            found = self._panes.between(bucket, bucket + 1)
            parts.append(
                self._rows(bucket, found, found.select([name[len(STATE) :] for name in self.state.names]))
            )
        rows = pa.concat_tables(parts)
        return rows.select(self.ids.names), rows

    def with_footprint(self, ids: pa.Table, commit: int) -> pa.Table:
        return ids

    def check(self, ids: pa.Table, commit: int) -> pa.Table:
        parts = [pa.schema([*self.ids, *self.state]).empty_table()]
        parts += [self._rows(bucket, part, self._panes.find(bucket, part)) for bucket, part in by_bucket(ids)]
        return pa.concat_tables(parts)

    def marks(self) -> Mapping[str, Any]:
        return {}

    def reaches_back_to(self, marks: Mapping[str, Any]) -> bool:
        return False

    # -- for its groups -----------------------------------------------------------------------------------

    def fresh(self, bucket: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows if self._replay is None else self._replay.fresh(bucket, rows)

    def opened(self, bucket: int, keys: pa.Table, count: int) -> None:
        """Note that `count` windows with these keys have opened in a pane. Without keys, `count` is 1."""
        columns = [pa.array(np.full(count, bucket)), *keys.columns]
        self._opened.append((bucket, pa.Table.from_arrays(columns, schema=self.ids)))

    def closed(self, bucket: int) -> None:
        self.closed_before = max(self.closed_before, bucket)

    def _rows(self, bucket: int, keys: pa.Table, state: pa.Table) -> pa.Table:
        columns = [pa.array(np.full(state.num_rows, bucket)), *(keys.column(key) for key in self._keys)]
        return pa.Table.from_arrays([*columns, *state.columns], schema=pa.schema([*self.ids, *self.state]))


class _Panes(WatchedGroups):
    def __init__(self, inner: Groups, windows: TimeContents) -> None:
        super().__init__(inner)
        self._windows = windows

    def add(self, bucket: int, rows: pa.RecordBatch) -> None:
        rows = self._windows.fresh(bucket, rows)
        if not rows.num_rows:
            return
        before = self._inner.size(bucket)
        keys = self._inner.admit(bucket, rows)
        if count := self._inner.size(bucket) - before:
            self._windows.opened(bucket, keys, count)

    def drop_before(self, bucket: int) -> None:
        self._inner.drop_before(bucket)
        self._windows.closed(bucket)
