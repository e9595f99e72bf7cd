"""Operators in partitioned stages: wrappers that give sequence numbers to their output (Flux 4.1.1).

- An operator that makes at most one row from each row keeps the row's number: filter, select, map.
- An operator that makes several rows from one adds an index to the number, which gives a compound number: flat
  map.
- A pair of a join has the numbers of both its rows, the larger one first: a compound number.
- All others make one row from many, such as windows. It gets the largest number among the rows so far.

An operator is *set-preserving* if it makes the same rows from the same input, but in any order. It names the
columns that identify its rows. Its output within a grain is sorted by these columns, and so is the same
everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pyarrow import compute

from peacefs.dataflow.model.operator import Operator, Rows
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.protocol.errors import InvalidQuery

from .aligned_union import AlignedUnion
from .grains import (
    HIDDEN,
    SEQUENCE,
    WITHIN,
    Grains,
    Numbers,
    marks,
    numbers_of,
    one_batch,
    plain,
    sequenced,
    with_numbers,
    without_numbers,
)
from .interface import OperatorSpecification
from .join import JoinWindow
from .row_operators import Filter, MapRows, Select, Union

#: The number of the right row of a pair, until it becomes the second number of the pair.
_SECOND = "__second"


@dataclass(frozen=True)
class Sequenced(OperatorSpecification):
    kind: ClassVar[str] = "sequenced"
    bounds_causes = False
    inner: OperatorSpecification

    @property
    def operator_class(self) -> OperatorClass:
        kind = self.inner.operator_class
        if kind is not OperatorClass.ARBITRARY:
            return kind
        # Here inputs interleave grain by grain, and the rows of a grain are ordered.
        settled = isinstance(self.inner, Union | AlignedUnion) or bool(self.inner.unique)
        return OperatorClass.DETERMINISTIC if settled else OperatorClass.ARBITRARY

    @property
    def wants_chance(self) -> bool:
        return self.inner.wants_chance

    @property
    def unrecorded(self) -> str | None:
        return self.inner.unrecorded

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        if self.inner.wants_time:
            raise InvalidQuery(
                f"{self.inner.kind} with a timeout, idle inputs or timers of the clock cannot be partitioned: a "
                "clock is not in the order of rows; leave these out, or put it after merge()"
            )
        made = self.inner.output_type([plain(each) for each in inputs])
        missing = [name for name in self.inner.unique if name not in made.schema.names]
        if missing:
            raise InvalidQuery(f"{self.inner.kind}(unique=...) names {missing[0]!r}, which is not in its rows")
        return sequenced(made)

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        schema = self.output_type(inputs).schema
        return _Sequenced(self._begun(inputs, schema, state), inputs, schema, state)

    def _begun(self, inputs: Sequence[StreamType], schema: pa.Schema, state: OperatorState) -> _Numbered:
        inner = self.inner
        plain_inputs = [plain(each) for each in inputs]
        if isinstance(inner, Filter | Union):
            return _Keeping(inner.start(inputs, state))
        if isinstance(inner, Select):
            hidden = tuple(compute.field(name) for name in HIDDEN)
            with_hidden = Select((*inner.names, *HIDDEN), (*inner.expressions, *hidden))
            return _Keeping(with_hidden.start(inputs, state))
        if isinstance(inner, JoinWindow) and inner.how is None:
            left, right = inputs
            started = inner.start([_first_number(left), _second_number(right)], state)
            return _Pairing(started, schema)
        started = inner.start(plain_inputs, state)
        if isinstance(inner, MapRows) and not inner.unique:
            return _OfEachRow(started) if inner.flat else _RowForRow(started)
        return _Largest(started, inner.unique)


class _Sequenced(Operator):
    """Takes one grain of each input at a time, and makes one grain of them."""

    def __init__(
        self, inner: _Numbered, inputs: Sequence[StreamType], schema: pa.Schema, state: OperatorState
    ) -> None:
        self._inner = inner
        self._schema = schema
        ports = len(inputs)
        self._grains = Grains(state, [each.schema for each in inputs]) if ports > 1 else None
        # The number of the last mark, and the inputs whose end the operator was told.
        self._marked = state.cell("marked", 0)
        self._told = state.cell("told", [False] * ports)

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        if self._grains is None:
            return (self._grain([(port, rows)]),)
        self._grains.add(port, rows)
        return self._take()

    def end(self, port: int) -> Iterable[Rows]:
        if self._grains is None:
            return (self._last([port]),)
        self._grains.end(port)
        return self._take()

    @property
    def late_rows(self) -> int:
        return self._inner.late_rows

    def _take(self) -> Iterator[Rows]:
        assert self._grains is not None
        # Wait until every input has a grain or has ended.
        while self._grains.settled:
            told = self._told.get()
            ended = [port for port, is_told in enumerate(told) if not is_told and self._grains.has_ended(port)]
            if ended:
                self._told.set([is_told or port in ended for port, is_told in enumerate(told)])
                yield self._last(ended)
            elif self._grains.ready:
                yield self._grain(list(self._grains.take()))
            else:
                return

    def _grain(self, grains: Sequence[tuple[int, Rows]]) -> Rows:
        """Make one output grain from one grain of each input."""
        sequence = max(int(numbers_of(rows, SEQUENCE)[-1]) for _, rows in grains)
        self._marked.set(max(sequence, self._marked.get()))
        made: list[Rows] = []
        for port, rows in grains:
            if rows.num_rows > 1:
                given = rows.slice(0, rows.num_rows - 1)
                made += self._inner.process(port, given, int(numbers_of(given, SEQUENCE).max()))
        return self._closed(made)

    def _last(self, ports: Sequence[int]) -> Rows:
        """Make a grain from the ends of inputs."""
        self._marked.set(self._marked.get() + 1)
        return self._closed([rows for port in ports for rows in self._inner.end(port, self._marked.get())])

    def _closed(self, made: Sequence[Rows]) -> Rows:
        return one_batch(self._schema, [*made, marks(self._schema, [self._marked.get()])])


class _Numbered:
    """An operator whose output is numbered in one of these ways."""

    def __init__(self, inner: Operator) -> None:
        self._inner = inner

    def process(self, port: int, rows: Rows, largest: int) -> Iterable[Rows]:
        """Process rows of a grain, in which `largest` is the highest number."""
        raise NotImplementedError

    def end(self, port: int, largest: int) -> Iterable[Rows]:
        return self._numbered(list(self._inner.end(port)), largest)

    @property
    def late_rows(self) -> int:
        return self._inner.late_rows

    def _numbered(self, made: Sequence[Rows], largest: int) -> Iterator[Rows]:
        first = 0
        for rows in made:
            yield with_numbers(rows, _same(largest, rows), np.arange(first, first + rows.num_rows))
            first += rows.num_rows


class _Keeping(_Numbered):
    """For operators that pass the number columns through unchanged."""

    def process(self, port: int, rows: Rows, largest: int) -> Iterable[Rows]:
        return self._inner.process(port, rows)


class _RowForRow(_Numbered):
    def process(self, port: int, rows: Rows, largest: int) -> Iterator[Rows]:
        for made in self._inner.process(port, without_numbers(rows)):
            yield with_numbers(made, numbers_of(rows, SEQUENCE), numbers_of(rows, WITHIN))


class _OfEachRow(_Numbered):
    """Processes rows one by one, since only then is it known which output comes from which row."""

    def process(self, port: int, rows: Rows, largest: int) -> Iterator[Rows]:
        given, sequence = without_numbers(rows), numbers_of(rows, SEQUENCE)
        for at in range(rows.num_rows):
            made = list(self._inner.process(port, given.slice(at, 1)))
            yield from self._numbered(made, int(sequence[at]))


class _Pairing(_Numbered):
    def __init__(self, inner: Operator, schema: pa.Schema) -> None:
        super().__init__(inner)
        self._schema = schema

    def process(self, port: int, rows: Rows, largest: int) -> Iterable[Rows]:
        given = rows.drop_columns([WITHIN])
        if port:
            names = [_SECOND if name == SEQUENCE else name for name in given.schema.names]
            given = given.rename_columns(names)
        return self._paired(self._inner.process(port, given))

    def end(self, port: int, largest: int) -> Iterable[Rows]:
        return self._paired(self._inner.end(port))

    def _paired(self, made: Iterable[Rows]) -> Iterator[Rows]:
        for rows in made:
            left, right = numbers_of(rows, SEQUENCE), numbers_of(rows, _SECOND)
            pairs = rows.select([name for name in self._schema.names if name not in HIDDEN])
            yield with_numbers(pairs, np.maximum(left, right), np.minimum(left, right))


class _Largest(_Numbered):
    def __init__(self, inner: Operator, unique: Sequence[str]) -> None:
        super().__init__(inner)
        self._order = [(name, "ascending") for name in unique]

    def process(self, port: int, rows: Rows, largest: int) -> Iterable[Rows]:
        return self._numbered(list(self._inner.process(port, without_numbers(rows))), largest)

    def _numbered(self, made: Sequence[Rows], largest: int) -> Iterator[Rows]:
        if self._order and made:
            made = [one_batch(made[0].schema, made).sort_by(self._order)]
        return super()._numbered(made, largest)


def _first_number(kind: StreamType) -> StreamType:
    return _renamed(kind, SEQUENCE)


def _second_number(kind: StreamType) -> StreamType:
    return _renamed(kind, _SECOND)


def _renamed(kind: StreamType, number: str) -> StreamType:
    schema = plain(kind).schema.append(pa.field(number, pa.int64()))
    return StreamType(schema, kind.time)


def _same(number: int, rows: Rows) -> Numbers:
    return np.full(rows.num_rows, number, np.int64)
