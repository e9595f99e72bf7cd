"""Windows of a number of rows, by key. A window is open if its key has rows, but not a whole number of windows.

If windows overlap, or skip rows, a key stays open from its first row on. The state of a key is its number of rows
and its panes, one row per pane. The commit of a key's footprint is stored beside its number of rows, so that one
look-up in the operator's own map returns both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from peacefs.dataflow.model.operator import Operator, Rows
from peacefs.dataflow.operators.count_windows import AggregateCountWindows
from peacefs.dataflow.unit_state.interface import Accumulator, Groups, RowQueue

from .contents import EARLIEST_BUCKET, WatchedGroups, WindowChanges
from .control_tuples import BUCKET, STATE
from .footprints import COMMIT_OF_WINDOW, NEWEST
from .replay import Replay

_COUNTS: Final = "counts"
_PANES: Final = "panes"
# Columns of the operator's structures.
_ROWS: Final = "__rows"
_PANE: Final = "__pane"
_Numbers = NDArray[np.int64]


class CountContents:
    """Windows of rows, for the log of their unit: which have opened and closed, and their state.

    It stands between the operator and its groups, and notes the keys that the operator changes. Beside the number
    of rows of a key it stores the commit of the key's footprint, or 0 if there is none. `windows_of` makes it, and
    `WindowedState` asks it for the changes at each commit.
    """

    closed_before = EARLIEST_BUCKET

    def __init__(self, of: AggregateCountWindows) -> None:
        self._keys = list(of.keys)
        self._size, self._advance = of.size_rows, of.advance_rows
        self._pane_rows = gcd(of.size_rows, of.advance_rows)
        # If windows overlap, or skip rows, a key never closes once it has had a row.
        self._closes = of.advance_rows == of.size_rows
        self._counts: Groups
        self._panes: Groups
        self._accumulators: Sequence[Accumulator] = ()
        #: Tables with the keys whose windows have opened or closed since the last commit.
        self._changed: list[pa.Table] = []
        # The distinct keys of the last batch.
        self._latest: pa.Table | None = None
        self._replay: Replay | None = None
        self.ids = self.state = pa.schema([])

    def begin(self, replay: Replay) -> None:
        self._replay = replay

    def accumulators(self, name: str, wanted: Sequence[Accumulator]) -> Sequence[Accumulator]:
        return [*wanted, COMMIT_OF_WINDOW] if name == _COUNTS else wanted

    def groups(self, name: str, inner: Groups, keys: pa.Schema, accumulators: Sequence[Accumulator]) -> Groups:
        loaded = self._replay.loaded if self._replay is not None else None
        if name == _COUNTS:
            self._counts = inner
            self.ids = pa.schema([pa.field(BUCKET, pa.int64()), *keys])
            if loaded is not None:
                counts = loaded.column(STATE + _ROWS).to_numpy()
                self._note(loaded, counts, np.zeros_like(counts))
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

    def changes(self, commit: int) -> WindowChanges:
        changed = self._take_changed()
        counts, newest = self._look_up(changed)
        is_open, had = self._is_open(counts), newest > 0
        # A window that has both opened and closed since the last commit needs no tuple.
        noted = is_open | had
        if noted.any():
            here = changed if noted.all() else changed.filter(pa.array(noted))
            self._note(here, counts[noted], np.where(is_open, commit, 0)[noted])
        opened = changed if is_open.all() else changed.filter(pa.array(is_open))
        closed = changed.filter(pa.array(had & ~is_open))
        return WindowChanges(opened, self._contents(opened, counts[is_open]), closed, newest[had])

    def all(self, commit: int) -> tuple[pa.Table, pa.Table]:
        self._changed.clear()
        found = self._counts.between(0, 1)
        counts = found.column(_ROWS).to_numpy()
        is_open = self._is_open(counts)
        self._note(found, counts, np.where(is_open, commit, 0))
        ids = self._named(found.filter(pa.array(is_open)), int(is_open.sum()))
        return ids, self._contents(ids, counts[is_open])

    def with_footprint(self, ids: pa.Table, commit: int) -> pa.Table:
        _, newest = self._look_up(ids)
        here = newest == commit
        return ids if here.all() else ids.filter(pa.array(here))

    def check(self, ids: pa.Table, commit: int) -> pa.Table:
        counts, _ = self._look_up(ids)
        self._note(ids, counts, np.full_like(counts, commit))
        return self._contents(ids, counts)

    def marks(self) -> Mapping[str, Any]:
        return {}

    def reaches_back_to(self, marks: Mapping[str, Any]) -> bool:
        return False

    # -- inside -------------------------------------------------------------------------------------------

    def _contents(self, ids: pa.Table, counts: _Numbers) -> pa.Table:
        """Return the rows with the state of open windows. `counts`: the numbers of rows of their keys."""
        if not ids.num_rows:
            return pa.schema([*self.ids, *self.state]).empty_table()
        # From the pane where the first unfinished window begins, to the pane of the last row.
        begins = np.maximum((counts - self._size) // self._advance + 1, 0) * self._advance
        firsts, lasts = begins // self._pane_rows, (counts - 1) // self._pane_rows
        # A key between two windows has no pane, and one row that says so.
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
        return pa.Table.from_arrays(columns, schema=pa.schema([*self.ids, *self.state]))

    def _look_up(self, ids: pa.Table) -> tuple[_Numbers, _Numbers]:
        """Return the number of rows of each key, and the commit of its footprint (0 if none)."""
        if not ids.num_rows:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        found = self._counts.find(0, ids)
        rows, newest = (compute.fill_null(found.column(name), 0).to_numpy() for name in (_ROWS, NEWEST))
        return rows, newest

    def _note(self, keys: pa.Table, counts: _Numbers, commits: _Numbers) -> None:
        """Store the commits of footprints beside the keys' numbers of rows, which do not change."""
        columns = [*(keys.column(key) for key in self._keys), pa.array(counts), pa.array(commits)]
        _put(self._counts, pa.Table.from_arrays(columns, [*self._keys, _ROWS, NEWEST]))

    def _is_open(self, counts: _Numbers) -> NDArray[np.bool_]:
        is_open: NDArray[np.bool_] = counts % self._advance != 0 if self._closes else counts > 0
        return is_open

    def _note_counted(self, keys: pa.Table, before: pa.ChunkedArray) -> None:
        """Note the keys that get a row and have no open window."""
        self._latest = keys
        counts: _Numbers = compute.fill_null(before, 0).to_numpy()
        opens = ~self._is_open(counts)
        if opens.any():
            self._changed.append(keys.filter(pa.array(opens)))

    def _note_completed(self, keys: pa.Table) -> None:
        if self._latest is not None and keys.num_rows > self._latest.num_rows:
            # There are many windows of few keys, so note each key of the batch once.
            keys = self._latest
        if keys.num_rows:
            self._changed.append(keys)

    def _take_changed(self) -> pa.Table:
        """Return the distinct noted windows, and clear the notes."""
        changed, self._changed = self._changed, []
        if not changed:
            return self.ids.empty_table()
        if not self._keys:
            return self._named(changed[0], 1)
        keys = pa.concat_tables([each.select(self._keys) for each in changed])
        keys = keys.group_by(self._keys, use_threads=False).aggregate([]).combine_chunks()
        return self._named(keys, keys.num_rows)

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
    """An operator that receives only the rows that their windows have not seen."""

    def __init__(self, operator: Operator, replay: Replay) -> None:
        self._operator = operator
        self._replay = replay

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        rows = self._replay.fresh(0, rows)
        return self._operator.process(port, rows) if rows.num_rows else ()

    def end(self, port: int) -> Iterable[Rows]:
        return self._operator.end(port)

    @property
    def late_rows(self) -> int:
        return self._operator.late_rows

    def on_time(self, now_us: int) -> Iterable[Rows]:
        return self._operator.on_time(now_us)


def _put(groups: Groups, table: pa.Table) -> None:
    for rows in table.combine_chunks().to_batches():
        if rows.num_rows:
            groups.put(0, rows)
