"""Operators without state: filter, select, map, flat map, union."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from pyarrow import acero, compute

from peacefs.dataflow.model.operator import Operator, Rows
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType, names_of
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.protocol.errors import InvalidQuery

from .interface import OperatorSpecification

Expression = compute.Expression
RowsFunction = Callable[[Rows], Rows]


@dataclass(frozen=True)
class Filter(OperatorSpecification):
    kind: ClassVar[str] = "filter"
    operator_class = OperatorClass.REPEATABLE
    predicate: Any

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        (stream,) = inputs
        try:
            kind = _evaluate(stream.empty(), [self.predicate], ["keep"]).schema.field("keep").type
        except (pa.ArrowException, TypeError) as error:
            raise InvalidQuery(
                f"filter({self.predicate}) cannot be evaluated: {_reason(error, stream)}"
            ) from error
        if not pa.types.is_boolean(kind):
            raise InvalidQuery(
                f"filter({self.predicate}) has type {kind}: a condition is wanted, as in col(...) > 0"
            )
        return stream

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _RowByRow(lambda rows: _filter(rows, self.predicate))


@dataclass(frozen=True)
class Select(OperatorSpecification):
    """Columns computed by expressions, in order."""

    kind: ClassVar[str] = "select"
    operator_class = OperatorClass.REPEATABLE
    names: tuple[str, ...]
    expressions: tuple[Any, ...]

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        (stream,) = inputs
        if stream.time not in self.names:
            raise InvalidQuery(
                f"select leaves out the time column {stream.time!r}: add it, since every stream has one"
            )
        try:
            schema = _evaluate(stream.empty(), self.expressions, self.names).schema
        except (pa.ArrowException, TypeError) as error:
            raise InvalidQuery(f"select of {names_of(self.names)} fails: {_reason(error, stream)}") from error
        return StreamType(schema, stream.time)

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        columns = list(self.names)
        if all(map(_is_column, self.expressions, columns)):
            return _RowByRow(lambda rows: rows.select(columns))
        return _RowByRow(lambda rows: _evaluate(rows, self.expressions, self.names))


@dataclass(frozen=True)
class MapRows(OperatorSpecification):
    """A user's function that makes one row from each row or, as `flat map`, any number of rows.

    The function is called with a batch, and must treat each of its rows independently.
    """

    kind: ClassVar[str] = "map"
    function: RowsFunction
    schema: pa.Schema
    time: str
    flat: bool
    deterministic: bool

    @property
    def operator_class(self) -> OperatorClass:
        return OperatorClass.REPEATABLE if self.deterministic else OperatorClass.ARBITRARY

    @property
    def unrecorded(self) -> str | None:
        if self.deterministic:
            return None
        return "its function is not deterministic; use process(), whose function draws from a random.Random"

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        if not callable(self.function):
            raise InvalidQuery(f"map needs a function of a record batch, not {self.function!r}")
        return StreamType(self.schema, self.time)

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _RowByRow(self._apply)

    def _apply(self, rows: Rows) -> Rows:
        made = checked(self.function(rows), self.schema, self.time, self.function)
        if not self.flat and made.num_rows != rows.num_rows:
            raise ValueError(
                f"{name_of(self.function)} made {made.num_rows} rows of {rows.num_rows}: use flat_map for that"
            )
        return made


@dataclass(frozen=True)
class Union(OperatorSpecification):
    """All rows of all inputs, as they arrive. The output depends on how the inputs interleave."""

    kind: ClassVar[str] = "union"
    operator_class = OperatorClass.ARBITRARY
    #: For each input, after how long without rows it holds the others back no more; empty if none is ever idle.
    idle_us: tuple[int | None, ...] = ()

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        first = inputs[0]
        for other in inputs[1:]:
            if other != first:
                raise InvalidQuery(
                    f"union needs streams of one type: ({describe(first)}) and ({describe(other)}); "
                    "make them alike with select"
                )
        return first

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _RowByRow(lambda rows: rows)


#: Operators without state.
ROW_BY_ROW = (Filter, MapRows, Select, Union)


class _RowByRow(Operator):
    keeps_rows: ClassVar[bool] = False

    def __init__(self, function: RowsFunction) -> None:
        self._function = function

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        made = self._function(rows)
        return (made,) if made.num_rows else ()


def describe(stream: StreamType) -> str:
    return f"{_columns(stream.schema)}, time {stream.time}"


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def name_of(function: Callable[..., object]) -> str:
    return getattr(function, "__qualname__", repr(function))


def checked(made: object, schema: pa.Schema, time: str, function: Callable[..., object]) -> Rows:
    """Return the output of a user's function, after a check that it has the declared schema and no null times."""
    if not isinstance(made, pa.RecordBatch):
        raise TypeError(f"{name_of(function)} returned {type(made).__name__}: a pyarrow.RecordBatch is wanted")
    if made.schema.names != schema.names or made.schema.types != schema.types:
        raise TypeError(
            f"{name_of(function)} returned ({_columns(made.schema)}) where ({_columns(schema)}) was promised"
        )
    if made.column(time).null_count:
        raise ValueError(
            f"{name_of(function)} returned the time column {time!r} with nulls: give every row a time"
        )
    return made


def _filter(rows: Rows, predicate: Any) -> Rows:
    if rows.num_rows > _ROWS_OF_A_THREAD:
        return rows.filter(predicate)
    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([rows]))),
        acero.Declaration("filter", acero.FilterNodeOptions(predicate)),
    ]
    kept = acero.Declaration.from_sequence(steps).to_table(use_threads=False)
    return kept.combine_chunks().to_batches()[0] if kept.num_rows else rows.slice(0, 0)


def _is_column(expression: Any, name: str) -> bool:
    """Return True if an expression is just the column of this name."""
    return isinstance(expression, Expression) and expression.equals(compute.field(name))


def _evaluate(rows: Rows, expressions: Sequence[Any], names: Sequence[str]) -> Rows:
    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([rows]))),
        acero.Declaration("project", acero.ProjectNodeOptions(list(expressions), list(names))),
    ]
    table = acero.Declaration.from_sequence(steps).to_table(use_threads=False).combine_chunks()
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


#: Acero gives this many rows to a thread at a time. For fewer rows, more threads only add waiting.
_ROWS_OF_A_THREAD = 32 * 1024
_NO_COLUMN = re.compile(r"No match for FieldRef\.Name\((.*?)\) in")


def _reason(error: Exception, stream: StreamType) -> str:
    """Return Arrow's reason in one line. For a missing column Arrow would print the whole schema."""
    missing = _NO_COLUMN.match(str(error))
    if missing:
        return f"there is no column {missing[1]!r}; the stream has {names_of(stream.schema.names)}"
    if "pyarrow._compute.Expression" in str(error):
        return "each column needs an expression, such as col('bytes') * 8 or lit(1)"
    return str(error).splitlines()[0]
