"""Bounded sort: rows in the order of their times, if no row is late by more than a bound (Aurora's BSort).

A row is emitted when a row arrives whose time is later by the bound. A row that is late by more is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pyarrow import compute

from peacefs.dataflow.model.operator import Operator, Rows
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.model.timing import Timing, together
from peacefs.dataflow.unit_state.operator_state import OperatorState

from .interface import OperatorSpecification
from .row_times import EARLIEST_US, running_maxima, times_of
from .stamps import LatestStamp, TimedStamps, earliest


@dataclass(frozen=True)
class BoundedSort(OperatorSpecification):
    kind: ClassVar[str] = "sort"
    judges_times: ClassVar[bool] = True
    operator_class = OperatorClass.CONVERGENT_CAPABLE
    within_us: int

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        (stream,) = inputs
        return stream

    def output_timing(self, inputs: Sequence[Timing]) -> Timing:
        return replace(together(inputs), lateness_us=0)

    def late_only(self) -> OperatorSpecification:
        return self

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _Sort(self.within_us, inputs[0], state)


class _Sort(Operator):
    def __init__(self, within_us: int, stream: StreamType, state: OperatorState) -> None:
        self._within_us = within_us
        self._time = stream.time
        self._waiting = state.rows("waiting", stream.schema)
        self._latest = state.cell("latest", EARLIEST_US)
        self._late = state.cell("late", 0)
        self._stamps, self._latest_stamp = TimedStamps(), LatestStamp()

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        times = times_of(rows, self._time)
        maxima = running_maxima(times, self._latest.get())
        self._latest.set(int(maxima[-1]))
        self._stamps.add(self.stamp, int(times.max()))
        self._latest_stamp.reach(self.stamp, int(times.max()))
        on_time = times >= maxima - self._within_us
        self._late.set(self._late.get() + int(np.count_nonzero(~on_time)))
        self.left_out = () if on_time.all() else (rows.filter(pa.array(~on_time)),)
        self._waiting.append(rows.filter(pa.array(on_time)))
        return self._release(int(maxima[-1]) - self._within_us)

    def end(self, port: int) -> Iterable[Rows]:
        return self._release(self._latest.get())

    @property
    def late_rows(self) -> int:
        return int(self._late.get())

    def oldest(self, port: int) -> int | None:
        return earliest(self._stamps.oldest, self._latest_stamp.stamp)

    def _release(self, until_us: int) -> Iterable[Rows]:
        self._stamps.drop_until(until_us)
        waiting = self._waiting.table()
        ready = compute.less_equal(waiting.column(self._time).cast(pa.int64()), until_us)
        released = waiting.filter(ready)
        if not released.num_rows:
            return ()
        self._waiting.replace(waiting.filter(compute.invert(ready)))
        # Stable sort: rows with the same time stay in the order of arrival.
        in_order = compute.sort_indices(released.column(self._time))
        batches: list[Rows] = released.take(in_order).combine_chunks().to_batches()
        return batches
