"""Union for operators that judge rows by their times: no input makes rows of another input late.

A row waits until every other input has reached the same progress, or has ended. The progress of a stream at a row
is the latest time up to that row. Rows leave in the order of their progress; rows with the same progress leave in
the order of the inputs. The progress of the union is thus the lowest progress of its inputs, however they
interleave.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pyarrow import compute

from peacefs.dataflow.model.operator import Operator, Rows
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.unit_state.operator_state import OperatorState

from .input_progress import InputProgress
from .interface import OperatorSpecification
from .row_operators import Union
from .row_times import ENDED_US, times_of
from .stamps import CountedStamps, LatestStamp, earliest

_PROGRESS = "\0progress"


@dataclass(frozen=True)
class AlignedUnion(OperatorSpecification):
    """A union whose output is read by an operator that judges rows by their times."""

    kind: ClassVar[str] = "union"
    operator_class = OperatorClass.ARBITRARY
    #: As that of `Union`.
    idle_us: tuple[int | None, ...] = ()

    @property
    def wants_time(self) -> bool:
        return any(self.idle_us)

    @property
    def bounds_causes(self) -> bool:
        return not self.wants_time

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        return Union().output_type(inputs)

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _Aligning(inputs, state, self.idle_us)


class _Aligning(Operator):
    def __init__(self, inputs: Sequence[StreamType], state: OperatorState, idle_us: Sequence[int | None]) -> None:
        self._time, self._schema = inputs[0].time, inputs[0].schema
        waiting = self._schema.append(pa.field(_PROGRESS, pa.int64()))
        self._waiting = [state.rows(f"waiting {port}", waiting) for port in range(len(inputs))]
        self._progress = InputProgress(state, len(inputs), idle_us)
        self._stamps = [CountedStamps() for _ in inputs]
        self._latest = [LatestStamp() for _ in inputs]

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        times = times_of(rows, self._time)
        maxima = self._progress.advance(port, times)
        self._stamps[port].add(self.stamp, rows.num_rows)
        self._latest[port].reach(self.stamp, int(times.max()))
        self._waiting[port].append(rows.append_column(_PROGRESS, pa.array(maxima)))
        return self._release()

    def end(self, port: int) -> Iterable[Rows]:
        self._progress.end(port)
        return self._release()

    def on_time(self, now_us: int) -> Iterable[Rows]:
        return self._release() if self._progress.on_time(now_us) else ()

    def oldest(self, port: int) -> int | None:
        return earliest(self._stamps[port].oldest, self._latest[port].stamp)

    def _release(self) -> Iterable[Rows]:
        """Return the rows that no later row of another input can precede."""
        progress = self._progress.of()
        parts = [self._split(port, progress) for port in range(len(progress))]
        if not any(part.num_rows for part in parts):
            return ()
        together = pa.concat_tables(parts)
        # Stable sort: rows with the same progress stay in the order of the inputs, and rows of one input keep
        # their order.
        order = np.argsort(together.column(_PROGRESS).to_numpy(), kind="stable")
        batches: list[Rows] = (
            together.drop_columns([_PROGRESS]).take(pa.array(order)).combine_chunks().to_batches()
        )
        return batches

    def _split(self, port: int, progress: Sequence[int]) -> pa.Table:
        """Remove the rows of an input that may leave (its first ones), and return them."""
        # Rows of earlier inputs leave before rows with the same progress here, so earlier inputs must be past that
        # progress.
        until = min([*(each - 1 for each in progress[:port]), *progress[port + 1 :]], default=ENDED_US)
        waiting = self._waiting[port].table()
        count = int(compute.sum(compute.less_equal(waiting.column(_PROGRESS), until)).as_py() or 0)
        self._waiting[port].drop(count)
        self._stamps[port].drop(count)
        return waiting.slice(0, count)
