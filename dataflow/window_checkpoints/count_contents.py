"""Windows of a number of rows, by key: one is open while its key has rows, and not a whole number of windows.

Where windows overlap, or leave rows out, a key stays open from its first row on. The state of a key is the number
of its rows and its panes: a row for each pane.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from peacefs.dataflow.operators.count_windows import AggregateCountWindows
from peacefs.dataflow.operators.interface import Operator, Rows
from peacefs.dataflow.unit_state.interface import Accumulator, Groups, RowQueue

from .contents import EARLIEST_BUCKET, WatchedGroups, distinct
from .control_tuples import BUCKET, STATE
from .footprints import Footprints
from .replay import Replay

_COUNTS: Final = "counts"
_PANES: Final = "panes"
# Columns of the operator's structures.
_ROWS: Final = "__rows"
_PANE: Final = "__pane"
_Numbers = NDArray[np.int64]


class CountContents:
    closed_before = EARLIEST_BUCKET

    def __init__(self, of: AggregateCountWindows) -> None:
        self._keys = list(of.keys)
        self._size, self._advance = of.size_rows, of.advance_rows
        self._pane_rows = gcd(of.size_rows, of.advance_rows)
        # With windows that overlap, or have rows between them, a key never closes once it had a row.
        self._closes = of.advance_rows == of.size_rows
        self._counts: Groups
        self._panes: Groups
        self._accumulators: Sequence[Accumulator] = ()
        self._changed: list[pa.Table] = []
        # The keys of the last batch, each once.
        self._latest: pa.Table | None = None
        self._replay: Replay | None = None
        self.ids = self.state = pa.schema([])

    def begin(self, footprints: Footprints, replay: Replay | None) -> None:
        self._replay = replay

    def groups(self, name: str, inner: Groups, keys: pa.Schema, accumulators: Sequence[Accumulator]) -> Groups:
        loaded = self._replay.loaded if self._replay is not None else None
        if name == _COUNTS:
            self._counts = inner
            self.ids = pa.schema([pa.field(BUCKET, pa.int64()), *keys])
            if loaded is not None:
                _put(inner, loaded.select([*self._keys, STATE + _ROWS]).rename_columns([*self._keys, _ROWS]))
            return _Counts(inner, self._note_counted)
        assert name == _PANES
        self._panes, self._accumulators = inner, accumulators
        fields = [pa.field(STATE + each.name, each.type) for each in accumulators]
        self.state = pa.schema([pa.field(STATE + _ROWS, pa.int64()), pa.field(STATE + _PANE, pa.int64()), *fields])
        if loaded is not None:
            there = loaded.filter(compute.is_valid(loaded.column(STATE + _PANE)))
            names = [_PANE, *(each.name for each in accumulators)]
            there = there.select([*self._keys, *(STATE + name for name in names)])
            _put(inner, there.rename_columns([*self._keys, *names]))
        return _CountPanes(inner, self._note_completed) if self._closes else inner

    def rows(self, name: str, inner: RowQueue) -> RowQueue:
        return inner

    def watch(self, operator: Operator) -> Operator:
        return _LeavingOut(operator, self._replay) if self._replay is not None else operator

    def changed(self) -> pa.Table:
        changed, self._changed = self._changed, []
        return distinct(changed, self.ids)

    def all(self) -> pa.Table:
        keys = self._counts.between(0, 1).select(self._keys)
        every = self._named(keys, self._counts.size(0))
        return every.filter(pa.array(self._is_open(self._counted(every))))

    def contents(self, ids: pa.Table) -> tuple[NDArray[np.bool_], pa.Table]:
        counts = self._counted(ids)
        is_open = self._is_open(counts)
        if not is_open.all():
            ids, counts = ids.filter(pa.array(is_open)), counts[is_open]
        if not ids.num_rows:
            return is_open, pa.schema([*self.ids, *self.state]).empty_table()
        # From the pane where the first window begins that is not over, to that of the last row.
        begins = np.maximum((counts - self._size) // self._advance + 1, 0) * self._advance
        firsts, lasts = begins // self._pane_rows, (counts - 1) // self._pane_rows
        # A key between two windows has no pane, and a row that says so.
        between = lasts < firsts
        panes_of = np.maximum(lasts - firsts + 1, 1)
        if (panes_of == 1).all():
            rows, numbers, panes = ids, counts, firsts
        else:
            each = np.repeat(np.arange(ids.num_rows), panes_of)
            within = np.arange(len(each)) - np.repeat(np.cumsum(panes_of) - panes_of, panes_of)
            rows, numbers, panes = ids.take(pa.array(each)), counts[each], firsts[each] + within
            between = between[each]
        asked = rows.select(self._keys).append_column(_PANE, pa.array(panes))
        found = self._panes.find(0, asked)
        columns = [*rows.columns, pa.array(numbers), pa.array(panes, mask=between), *found.columns]
        return is_open, pa.Table.from_arrays(columns, schema=pa.schema([*self.ids, *self.state]))

    def marks(self) -> Mapping[str, Any]:
        return {}

    def reaches_back_to(self, marks: Mapping[str, Any]) -> bool:
        return False

    # -- inside -------------------------------------------------------------------------------------------

    def _counted(self, ids: pa.Table) -> _Numbers:
        if not ids.num_rows:
            return np.zeros(0, np.int64)
        counted: _Numbers = compute.fill_null(self._counts.find(0, ids).column(_ROWS), 0).to_numpy()
        return counted

    def _is_open(self, counts: _Numbers) -> NDArray[np.bool_]:
        is_open: NDArray[np.bool_] = counts % self._advance != 0 if self._closes else counts > 0
        return is_open

    def _note_counted(self, keys: pa.Table, before: pa.ChunkedArray) -> None:
        """Note the keys that have no open window and get a row."""
        self._latest = keys
        counts: _Numbers = compute.fill_null(before, 0).to_numpy()
        opens = ~self._is_open(counts)
        if opens.any():
            self._changed.append(self._named(keys.filter(pa.array(opens)), int(opens.sum())))

    def _note_completed(self, keys: pa.Table) -> None:
        if self._latest is not None and keys.num_rows > self._latest.num_rows:
            # Many windows of few keys: each key of the batch once is less.
            keys = self._latest
        if keys.num_rows:
            self._changed.append(self._named(keys, keys.num_rows))

    def _named(self, keys: pa.Table, count: int) -> pa.Table:
        columns = [pa.array(np.zeros(count, np.int64)), *(keys.column(key) for key in self._keys)]
        return pa.Table.from_arrays(columns, schema=self.ids)


class _Counts(WatchedGroups):
    def __init__(self, inner: Groups, note: Any) -> None:
        super().__init__(inner)
        self._note = note

    def find(self, bucket: int, keys: pa.Table) -> pa.Table:
        found = self._inner.find(bucket, keys)
        self._note(keys, found.column(_ROWS))
        return found


class _CountPanes(WatchedGroups):
    def __init__(self, inner: Groups, note: Any) -> None:
        super().__init__(inner)
        self._note = note

    def remove(self, bucket: int, keys: pa.Table) -> None:
        self._inner.remove(bucket, keys)
        self._note(keys)


class _LeavingOut(Operator):
    """An operator that gets the rows alone that their windows have not seen."""

    def __init__(self, operator: Operator, replay: Replay) -> None:
        self._operator = operator
        self._replay = replay

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        rows = self._replay.fresh(0, rows)
        return self._operator.process(port, rows) if rows.num_rows else ()

    def end(self, port: int) -> Iterable[Rows]:
        return self._operator.end(port)

    def on_time(self, now_us: int) -> Iterable[Rows]:
        return self._operator.on_time(now_us)


def _put(groups: Groups, table: pa.Table) -> None:
    for rows in table.combine_chunks().to_batches():
        if rows.num_rows:
            groups.put(0, rows)
