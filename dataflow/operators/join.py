"""Windowed join of two streams: pairs of rows with equal keys whose times differ by at most a window.

The result must not depend on the order of arrival. So the join takes the rows of both inputs in the order of their
*progress*, the latest time that their stream had reached; with equal progress the left row comes first. A row
waits until the other input has come as far. A pair is emitted when the later of its two rows is taken, and has the
later of their times. A row that arrives after a later one of its stream may miss pairs, because the rows it should
have met may be gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from peacefs.dataflow.model.operator import Operator, Rows
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType, names_of
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.protocol.errors import InvalidQuery

from .interface import OperatorSpecification
from .keys import check_keys, comparable
from .row_times import EARLIEST_US, ENDED_US, running_maxima, times_of
from .stamps import CountedStamps

_PROGRESS = "__progress"
_ORDER = "__order"
# Column names for the indices of rows while keys are joined.
_LEFT, _RIGHT = "__left", "__right"
_Places = NDArray[np.int64]
_Mask = NDArray[np.bool_]
_SIDES = ("left", "right")


@dataclass(frozen=True)
class JoinWindow(OperatorSpecification):
    kind: ClassVar[str] = "join"
    judges_times: ClassVar[bool] = True
    operator_class = OperatorClass.REPEATABLE
    keys: tuple[str, ...]
    within_us: int

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        left, right = inputs
        check_keys(self.keys, left, "join")
        check_keys(self.keys, right, "join")
        for key in self.keys:
            if left.schema.field(key).type != right.schema.field(key).type:
                raise InvalidQuery(
                    f"join by {key!r}: its type is {left.schema.field(key).type} on the left and "
                    f"{right.schema.field(key).type} on the right; cast one with select"
                )
        added = [field for field in right.schema if field.name not in (*self.keys, right.time)]
        twice = [field.name for field in added if field.name in left.schema.names]
        if twice:
            raise InvalidQuery(f"join: both streams have {names_of(twice)}; rename on one side with select")
        return StreamType(pa.schema([*left.schema, *added]), left.time)

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _Join(self, inputs, self.output_type(inputs).schema, state)


class _Join(Operator):
    """The running operator: rows wait for the other input, are taken in one order, and meet its window.

    The pairs and their order do not depend on how rows of the two inputs interleave. A row leaves the window when
    no later row of the other input can be near enough. Its unit calls it, one batch at a time.
    """

    def __init__(
        self, of: JoinWindow, inputs: Sequence[StreamType], schema: pa.Schema, state: OperatorState
    ) -> None:
        self._of = of
        self._times = [stream.time for stream in inputs]
        self._schema = schema
        extra = [pa.field(_PROGRESS, pa.int64()), pa.field(_ORDER, pa.int64())]
        schemas = [pa.schema([*stream.schema, *extra]) for stream in inputs]
        #: Rows that wait for the other input, and rows that later rows may join.
        self._waiting = [state.rows(f"{side} waiting", one) for side, one in zip(_SIDES, schemas, strict=True)]
        self._window = [state.rows(f"{side} window", one) for side, one in zip(_SIDES, schemas, strict=True)]
        self._progress = state.cell("progress", [EARLIEST_US, EARLIEST_US])
        # Rows are counted as they are taken, so that pairs can be ordered.
        self._taken = state.cell("taken", 0)
        self._late = state.cell("late", 0)
        self._stamps = [CountedStamps(), CountedStamps()]

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        progress = self._progress.get()
        times = times_of(rows, self._times[port])
        maxima = running_maxima(times, progress[port])
        self._late.set(self._late.get() + int(np.count_nonzero(times < maxima)))
        progress = [*progress]
        progress[port] = int(maxima[-1])
        self._progress.set(progress)
        self._stamps[port].add(self.stamp, rows.num_rows)
        unordered = pa.array(np.zeros(rows.num_rows, dtype=np.int64))
        columns = [*rows.columns, pa.array(maxima), unordered]
        self._waiting[port].append(pa.RecordBatch.from_arrays(columns, [*rows.schema.names, _PROGRESS, _ORDER]))
        return self._take()

    def end(self, port: int) -> Iterable[Rows]:
        progress = [*self._progress.get()]
        progress[port] = ENDED_US
        self._progress.set(progress)
        return self._take()

    def oldest(self, port: int) -> int | None:
        return self._stamps[port].oldest

    @property
    def late_rows(self) -> int:
        return int(self._late.get())

    def _take(self) -> Iterable[Rows]:
        """Take the rows that no later row can precede, and return their pairs."""
        left_progress, right_progress = self._progress.get()
        # A left row precedes a right row with the same progress.
        ready = [
            self._split(0, compute.less_equal(self._waiting[0].table().column(_PROGRESS), right_progress)),
            self._split(1, compute.less(self._waiting[1].table().column(_PROGRESS), left_progress)),
        ]
        if not ready[0].num_rows and not ready[1].num_rows:
            return ()
        new = self._number(ready)
        windows = [self._window[port].table() for port in (0, 1)]
        sides = [pa.concat_tables([windows[port], new[port]]) for port in (0, 1)]
        batches = self._pairs(sides, [window.num_rows for window in windows])
        self._taken.set(self._taken.get() + new[0].num_rows + new[1].num_rows)
        oldest = min(left_progress, right_progress) - self._of.within_us
        for port, side in enumerate(sides):
            for batch in new[port].combine_chunks().to_batches():
                self._window[port].append(batch)
            # Progress only rises, so the rows that are too old come first.
            gone = _number_of(compute.less(side.column(_PROGRESS), oldest))
            self._window[port].drop(gone)
            self._stamps[port].drop(gone)
        return batches

    def _split(self, port: int, mask: pa.ChunkedArray) -> pa.Table:
        """Remove the rows of `mask` (the first ones) from the waiting rows, and return them."""
        count = _number_of(mask)
        ready = self._waiting[port].table().slice(0, count)
        self._waiting[port].drop(count)
        return ready

    def _number(self, ready: Sequence[pa.Table]) -> list[pa.Table]:
        progress = np.concatenate([table.column(_PROGRESS).to_numpy() for table in ready])
        port = np.concatenate([np.full(table.num_rows, at) for at, table in enumerate(ready)])
        ranks = np.empty(len(progress), dtype=np.int64)
        # Stable sort, so that rows of one input keep their order.
        ranks[np.lexsort((port, progress))] = np.arange(len(progress)) + self._taken.get()
        numbered, begin = [], 0
        for table in ready:
            order = pa.array(ranks[begin : begin + table.num_rows])
            numbered.append(table.set_column(table.schema.get_field_index(_ORDER), _ORDER, order))
            begin += table.num_rows
        return numbered

    def _pairs(self, sides: Sequence[pa.Table], seen: Sequence[int]) -> list[Rows]:
        """Return the pairs of rows of two sides, except pairs in which both rows were `seen` before.

        Only the keys are joined. The other columns are fetched for pairs whose times are near.
        """
        left, right = (side.select(list(self._of.keys)) for side in sides)
        found = [
            _matches(left.slice(seen[0]), right, list(self._of.keys), (seen[0], 0)),
            _matches(left.slice(0, seen[0]), right.slice(seen[1]), list(self._of.keys), (0, seen[1])),
        ]
        places = [np.concatenate([each[port] for each in found]) for port in (0, 1)]
        near = self._near(sides, [_PROGRESS, _PROGRESS], places)
        near &= self._near(sides, self._times, places)
        places = [each[near] for each in places]
        if not len(places[0]):
            return []
        orders = [side.column(_ORDER).to_numpy()[chosen] for side, chosen in zip(sides, places, strict=True)]
        order = np.lexsort((np.minimum(*orders), np.maximum(*orders)))
        chosen = [pa.array(each[order]) for each in places]
        names = (sides[0].column_names[:-2], self._schema.names[len(sides[0].column_names) - 2 :])
        columns = {
            name: side.column(name).take(rows)
            for side, rows, wanted in zip(sides, chosen, names, strict=True)
            for name in wanted
        }
        times = [side.column(name).take(rows) for side, name, rows in zip(sides, self._times, chosen, strict=True)]
        columns[self._times[0]] = compute.max_element_wise(*times)
        batches: list[Rows] = (
            pa.Table.from_arrays(list(columns.values()), schema=self._schema).combine_chunks().to_batches()
        )
        return batches

    def _near(self, sides: Sequence[pa.Table], names: Sequence[str], places: Sequence[_Places]) -> _Mask:
        """Return a mask of the pairs whose values in two time columns differ by at most the window."""
        left, right = (
            side.column(name).cast(pa.int64()).to_numpy()[chosen]
            for side, name, chosen in zip(sides, names, places, strict=True)
        )
        near: _Mask = np.abs(left - right) <= self._of.within_us
        return near


def _matches(left: pa.Table, right: pa.Table, keys: list[str], begin: tuple[int, int]) -> tuple[_Places, _Places]:
    """Return the indices of rows with equal keys. `begin`: the index of each table's first row."""
    if not left.num_rows or not right.num_rows:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    columns = zip(*(comparable(left.column(key), right.column(key)) for key in keys), strict=True)
    numbered = [
        pa.table(list(given), names=keys).append_column(name, pa.array(np.arange(first, first + len(given[0]))))
        for given, name, first in zip(columns, (_LEFT, _RIGHT), begin, strict=True)
    ]
    joined = numbered[0].join(numbered[1], keys=keys, join_type="inner", use_threads=False)
    return joined.column(_LEFT).to_numpy(), joined.column(_RIGHT).to_numpy()


def _number_of(mask: pa.ChunkedArray) -> int:
    return int(compute.sum(mask).as_py() or 0)
