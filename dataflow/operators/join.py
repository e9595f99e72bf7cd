"""Windowed join of two streams: pairs of rows with equal keys whose times differ by at most a window.

To be the same whatever the order of arrival, it takes the rows of both inputs in the order of their *progress*,
the latest time that their stream had reached (the left one first if both have reached the same): a row waits until
the other input is as far. Each pair comes with the later of its two rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pyarrow import compute

from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType, names_of
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.protocol.errors import InvalidQuery

from .interface import Operator, OperatorSpecification, Rows
from .row_times import EARLIEST_US, running_maxima, times_of
from .stamps import CountedStamps

_PROGRESS = "__progress"
_ORDER = "__order"
_SIDES = ("left", "right")
# The progress of an input that has ended.
_ENDED_US = 2**61


@dataclass(frozen=True)
class JoinWindow(OperatorSpecification):
    kind: ClassVar[str] = "join"
    operator_class = OperatorClass.REPEATABLE
    keys: tuple[str, ...]
    within_us: int

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        left, right = inputs
        left.require(self.keys, "join")
        right.require(self.keys, "join")
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
    def __init__(
        self, of: JoinWindow, inputs: Sequence[StreamType], schema: pa.Schema, state: OperatorState
    ) -> None:
        self._of = of
        self._times = [stream.time for stream in inputs]
        self._schema = schema
        extra = [pa.field(_PROGRESS, pa.int64()), pa.field(_ORDER, pa.int64())]
        schemas = [pa.schema([*stream.schema, *extra]) for stream in inputs]
        #: Rows that wait for the other input, and rows that later ones may join.
        self._waiting = [state.rows(f"{side} waiting", one) for side, one in zip(_SIDES, schemas, strict=True)]
        self._window = [state.rows(f"{side} window", one) for side, one in zip(_SIDES, schemas, strict=True)]
        self._progress = state.cell("progress", [EARLIEST_US, EARLIEST_US])
        # Rows are counted as they are taken, so that pairs can be put in order.
        self._taken = state.cell("taken", 0)
        self._stamps = [CountedStamps(), CountedStamps()]

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        progress = self._progress.get()
        maxima = running_maxima(times_of(rows, self._times[port]), progress[port])
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
        progress[port] = _ENDED_US
        self._progress.set(progress)
        return self._take()

    def oldest(self, port: int) -> int | None:
        return self._stamps[port].oldest

    def _take(self) -> Iterable[Rows]:
        """Take the rows that nothing can come before any more, and return the pairs that they make."""
        left_progress, right_progress = self._progress.get()
        # A left row goes before a right one of the same progress.
        ready = [
            self._split(0, compute.less_equal(self._waiting[0].table().column(_PROGRESS), right_progress)),
            self._split(1, compute.less(self._waiting[1].table().column(_PROGRESS), left_progress)),
        ]
        if not ready[0].num_rows and not ready[1].num_rows:
            return ()
        new = self._number(ready)
        sides = [pa.concat_tables([self._window[port].table(), new[port]]) for port in (0, 1)]
        pairs = self._pairs(sides[0], sides[1], self._taken.get())
        self._taken.set(self._taken.get() + new[0].num_rows + new[1].num_rows)
        oldest = min(left_progress, right_progress) - self._of.within_us
        for port, side in enumerate(sides):
            for batch in new[port].combine_chunks().to_batches():
                self._window[port].append(batch)
            # Progress only rises, so that what is too old is at the head.
            gone = _number_of(compute.less(side.column(_PROGRESS), oldest))
            self._window[port].drop(gone)
            self._stamps[port].drop(gone)
        batches: list[Rows] = pairs.combine_chunks().to_batches()
        return batches

    def _split(self, port: int, mask: pa.ChunkedArray) -> pa.Table:
        """Remove the rows of `mask`, which are the first, from those that wait, and return them."""
        count = _number_of(mask)
        ready = self._waiting[port].table().slice(0, count)
        self._waiting[port].drop(count)
        return ready

    def _number(self, ready: Sequence[pa.Table]) -> list[pa.Table]:
        progress = np.concatenate([table.column(_PROGRESS).to_numpy() for table in ready])
        port = np.concatenate([np.full(table.num_rows, at) for at, table in enumerate(ready)])
        ranks = np.empty(len(progress), dtype=np.int64)
        # Stable, so that rows of one input keep their order.
        ranks[np.lexsort((port, progress))] = np.arange(len(progress)) + self._taken.get()
        numbered, begin = [], 0
        for table in ready:
            order = pa.array(ranks[begin : begin + table.num_rows])
            numbered.append(table.set_column(table.schema.get_field_index(_ORDER), _ORDER, order))
            begin += table.num_rows
        return numbered

    def _pairs(self, left: pa.Table, right: pa.Table, first_new: int) -> pa.Table:
        keys = list(self._of.keys)
        hidden = [self._times[1], _PROGRESS, _ORDER]
        renamed = [f"__right {name}" if name in hidden else name for name in right.column_names]
        joined = left.join(
            right.rename_columns(renamed), keys=keys, join_type="inner", use_threads=False, coalesce_keys=True
        )
        lefts, rights = joined.column(_ORDER), joined.column(f"__right {_ORDER}")
        later, earlier = compute.max_element_wise(lefts, rights), compute.min_element_wise(lefts, rights)
        wanted = compute.and_(
            compute.greater_equal(later, first_new),
            compute.and_(
                self._near(joined.column(_PROGRESS), joined.column(f"__right {_PROGRESS}")),
                self._near(
                    joined.column(self._times[0]).cast(pa.int64()),
                    joined.column(f"__right {self._times[1]}").cast(pa.int64()),
                ),
            ),
        )
        ordered = joined.append_column("__later", later).append_column("__earlier", earlier).filter(wanted)
        ordered = ordered.take(
            compute.sort_indices(ordered, [("__later", "ascending"), ("__earlier", "ascending")])
        )
        return ordered.select(self._schema.names).cast(self._schema)

    def _near(self, left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
        return compute.less_equal(compute.abs(compute.subtract(left, right)), self._of.within_us)


def _number_of(mask: pa.ChunkedArray) -> int:
    return int(compute.sum(mask).as_py() or 0)
