"""Windows of time, by key: each pane of a key is open until the last window that has it closes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from peacefs.dataflow.operators.interface import Operator
from peacefs.dataflow.operators.time_windows import AggregateTimeWindows
from peacefs.dataflow.unit_state.interface import Accumulator, Groups, RowQueue

from .contents import EARLIEST_BUCKET, WatchedGroups, distinct
from .control_tuples import BUCKET, STATE
from .footprints import Footprints, by_bucket
from .replay import Replay


class TimeContents:
    def __init__(self, of: AggregateTimeWindows) -> None:
        self._keys = list(of.keys)
        self._panes: Groups
        self._footprints: Footprints
        self._replay: Replay | None = None
        self._changed: list[pa.Table] = []
        self.closed_before = EARLIEST_BUCKET
        self.ids = self.state = pa.schema([])

    def begin(self, footprints: Footprints, replay: Replay | None) -> None:
        self._footprints, self._replay = footprints, replay

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

    def changed(self) -> pa.Table:
        changed, self._changed = self._changed, []
        return distinct(changed, self.ids)

    def all(self) -> pa.Table:
        buckets = [
            self._named(bucket, self._panes.between(bucket, bucket + 1)) for bucket in self._panes.buckets()
        ]
        return pa.concat_tables([self.ids.empty_table(), *buckets])

    def contents(self, ids: pa.Table) -> tuple[NDArray[np.bool_], pa.Table]:
        is_open: NDArray[np.bool_] = ids.column(BUCKET).to_numpy() >= self.closed_before
        if not is_open.all():
            ids = ids.filter(pa.array(is_open))
        schema = pa.schema([*self.ids, *self.state])
        parts = [schema.empty_table()]
        for bucket, part in by_bucket(ids):
            found = self._panes.find(bucket, part)
            parts.append(pa.Table.from_arrays([*self._named(bucket, part).columns, *found.columns], schema=schema))
        return is_open, pa.concat_tables(parts)

    def marks(self) -> Mapping[str, Any]:
        return {}

    def reaches_back_to(self, marks: Mapping[str, Any]) -> bool:
        return False

    # -- for its groups -----------------------------------------------------------------------------------

    def fresh(self, bucket: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows if self._replay is None else self._replay.fresh(bucket, rows)

    def note(self, bucket: int, rows: pa.RecordBatch) -> None:
        """Note the windows of some rows that have no footprint."""
        here = distinct([self._named(bucket, pa.Table.from_batches([rows]))], self.ids)
        new = self._footprints.without(bucket, here)
        if new.num_rows:
            self._changed.append(new)

    def closed(self, bucket: int) -> None:
        self.closed_before = max(self.closed_before, bucket)

    def _named(self, bucket: int, rows: pa.Table) -> pa.Table:
        columns = [pa.array(np.full(rows.num_rows, bucket)), *(rows.column(key) for key in self._keys)]
        return pa.Table.from_arrays(columns, schema=self.ids)


class _Panes(WatchedGroups):
    def __init__(self, inner: Groups, windows: TimeContents) -> None:
        super().__init__(inner)
        self._windows = windows

    def add(self, bucket: int, rows: pa.RecordBatch) -> None:
        rows = self._windows.fresh(bucket, rows)
        if not rows.num_rows:
            return
        before = self._inner.size(bucket)
        self._inner.add(bucket, rows)
        if self._inner.size(bucket) != before:
            self._windows.note(bucket, rows)

    def drop_before(self, bucket: int) -> None:
        self._inner.drop_before(bucket)
        self._windows.closed(bucket)
