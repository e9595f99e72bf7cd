"""The producing edge of a partitioned stage: it numbers rows, and routes them by key (Flux 4.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from peacefs.dataflow.model.operator import Operator, Rows
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.unit_state.operator_state import OperatorState

from .grains import MARK, WITHIN, marks, numbers_of, one_batch, sequenced, with_numbers
from .interface import OperatorSpecification
from .key_hashes import check_hashed, parts_of
from .row_times import EARLIEST_US, running_maxima, times_of

_PART = "__part"
_EVERY_PART = -1


@dataclass(frozen=True)
class NumberRows(OperatorSpecification):
    """Assigns numbers to rows from 1, and closes grains.

    A grain is closed after `grain_rows` rows, and when the time of rows passes a multiple of `grain_us`.
    """

    kind: ClassVar[str] = "number"
    operator_class = OperatorClass.DETERMINISTIC
    bounds_causes = False
    grain_rows: int
    grain_us: int

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        (stream,) = inputs
        return sequenced(stream)

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _Numbering(self, inputs[0], self.output_type(inputs).schema, state)


class _Numbering(Operator):
    def __init__(self, of: NumberRows, stream: StreamType, schema: pa.Schema, state: OperatorState) -> None:
        self._of = of
        self._time = stream.time
        self._schema = schema
        # The number of the last row, the number of the last mark, and the latest time.
        self._place = state.cell("place", [0, 0, EARLIEST_US])

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        last, marked, latest = self._place.get()
        numbers = np.arange(last + 1, last + 1 + rows.num_rows)
        maxima = running_maxima(times_of(rows, self._time), latest)
        spans = maxima // self._of.grain_us
        before = np.concatenate([[latest // self._of.grain_us], spans[:-1]])
        closed = np.union1d(numbers[spans != before] - 1, numbers[numbers % self._of.grain_rows == 0])
        closed = closed[closed > marked]
        self._place.set([int(numbers[-1]), int(closed[-1]) if len(closed) else marked, int(maxima[-1])])
        numbered = with_numbers(rows, numbers, np.zeros(rows.num_rows, np.int64))
        if not len(closed):
            return (numbered,)
        together = one_batch(self._schema, [numbered, marks(self._schema, closed.tolist())])
        order = np.argsort(np.concatenate([numbers * 2, closed * 2 + 1]), kind="stable")
        return (together.take(pa.array(order)),)

    def end(self, port: int) -> Iterable[Rows]:
        last, marked, latest = self._place.get()
        if marked == last:
            return ()
        self._place.set([last, last, latest])
        return (marks(self._schema, [last]),)


@dataclass(frozen=True)
class Route(OperatorSpecification):
    """Adds to each row the index of the part that it goes to. Marks go to all parts."""

    kind: ClassVar[str] = "route"
    operator_class = OperatorClass.REPEATABLE
    keys: tuple[str, ...]
    parts: int

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        (stream,) = inputs
        check_hashed(self.keys, stream, "partition")
        return StreamType(stream.schema.append(pa.field(_PART, pa.int16())), stream.time)

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _Routing(self)


class _Routing(Operator):
    keeps_rows: ClassVar[bool] = False

    def __init__(self, of: Route) -> None:
        self._of = of

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        parts = parts_of(rows, self._of.keys, self._of.parts)
        parts[numbers_of(rows, WITHIN) == MARK] = _EVERY_PART
        return (rows.append_column(_PART, pa.array(parts)),)


@dataclass(frozen=True)
class TakePart(OperatorSpecification):
    """Selects the rows that go to one part."""

    kind: ClassVar[str] = "part"
    operator_class = OperatorClass.REPEATABLE
    part: int

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        (stream,) = inputs
        return StreamType(pa.schema([field for field in stream.schema if field.name != _PART]), stream.time)

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _Taking(self.part)


class _Taking(Operator):
    keeps_rows: ClassVar[bool] = False

    def __init__(self, part: int) -> None:
        self._part = part

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        parts = rows.column(_PART).to_numpy()
        mine = (parts == self._part) | (parts == _EVERY_PART)
        if not mine.any():
            return ()
        rows = rows.drop_columns([_PART])
        return (rows if mine.all() else rows.filter(pa.array(mine)),)
