"""Rejects rows of a source that are far in the future, so that a wrong clock does not close windows.

A row is ahead if it is later than every accepted row before it by more than a bound. After many such rows in
succession that agree with each other the source has really moved on, and its rows are accepted again. The decision
depends only on the rows, so that a replay makes it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from peacefs.dataflow.model.operator import Operator, Rows
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.unit_state.operator_state import OperatorState

from .interface import OperatorSpecification
from .row_times import EARLIEST_US, Times, running_maxima, times_of

# Number of rows in succession that must agree on a time far ahead before they are believed.
dataflow_rows_ahead: Final = 16


@dataclass(frozen=True)
class SourceTimes(OperatorSpecification):
    kind: ClassVar[str] = "times"
    operator_class = OperatorClass.DETERMINISTIC
    bounds_causes = False
    ahead_us: int

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        (stream,) = inputs
        return stream

    def late_only(self) -> OperatorSpecification:
        return self

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _SourceTimes(self.ahead_us, inputs[0].time, state)


class _SourceTimes(Operator):
    def __init__(self, ahead_us: int, time: str, state: OperatorState) -> None:
        self._ahead_us, self._time = ahead_us, time
        # [latest accepted time, time of the last row ahead, number of rows ahead that agree with it]
        self._progress = state.cell("progress", [EARLIEST_US, EARLIEST_US, 0])
        self._rejected = state.cell("rejected", 0)

    @property
    def late_rows(self) -> int:
        return int(self._rejected.get())

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        self.left_out = ()
        latest, _, _ = self._progress.get()
        times = times_of(rows, self._time)
        maxima = running_maxima(times, latest)
        before = np.concatenate([[latest], maxima[:-1]])
        if ((times <= before + self._ahead_us) | (before == EARLIEST_US)).all():
            self._progress.set([int(maxima[-1]), EARLIEST_US, 0])
            return (rows,)
        accepted = pa.array(self._accept(times))
        self.left_out = (rows.filter(pa.compute.invert(accepted)),)
        self._rejected.set(self._rejected.get() + self.left_out[0].num_rows)
        kept = rows.filter(accepted)
        return (kept,) if kept.num_rows else ()

    def _accept(self, times: Times) -> list[bool]:
        latest, seen, agree = self._progress.get()
        accepted = []
        for time in times.tolist():
            ahead = latest != EARLIEST_US and time > latest + self._ahead_us
            if ahead:
                agree = agree + 1 if abs(time - seen) <= self._ahead_us else 1
                seen = time
                ahead = agree < dataflow_rows_ahead
            if not ahead:
                latest, seen, agree = max(latest, time), EARLIEST_US, 0
            accepted.append(not ahead)
        self._progress.set([latest, seen, agree])
        return accepted
