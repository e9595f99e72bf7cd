"""The type of a stream: the schema of its rows, and the column that holds their times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from peacefs.protocol.errors import InvalidQuery

#: Times are microseconds since 1970, as in Spark.
TIME = pa.timestamp("us")


@dataclass(frozen=True)
class StreamType:
    schema: pa.Schema
    #: A column of type `TIME` without nulls.
    time: str

    def __post_init__(self) -> None:
        if len(set(self.schema.names)) != len(self.schema.names):
            twice = sorted({name for name in self.schema.names if self.schema.names.count(name) > 1})
            raise InvalidQuery(f"column {twice[0]!r} appears more than once: give each column its own name")
        if self.time not in self.schema.names:
            raise InvalidQuery(
                f"the time column {self.time!r} is not among the columns {names_of(self.schema.names)}: "
                "name one of them, of type timestamp"
            )
        kind = self.schema.field(self.time).type
        if kind != TIME:
            raise InvalidQuery(f"the time column {self.time!r} has type {kind}: it must be {TIME}")

    def require(self, columns: Iterable[str], purpose: str) -> None:
        """Raise InvalidQuery unless the stream has `columns`. `purpose` is named in the message."""
        for column in columns:
            if column not in self.schema.names:
                raise InvalidQuery(
                    f"{purpose} needs a column {column!r}; the stream has {names_of(self.schema.names)}"
                )

    def conform(self, given: object) -> pa.RecordBatch:
        """Convert rows of a source to this type: order the columns, and cast them.

        A column may have another width of its type (int32 for int64), if no value changes. Raises InvalidQuery
        with the difference.
        """
        rows: pa.RecordBatch
        if isinstance(given, pa.Table):
            (rows,) = given.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], given.schema)]
        elif isinstance(given, pa.RecordBatch):
            rows = given
        else:
            raise InvalidQuery(f"rows come as a pyarrow.RecordBatch, and not as {type(given).__name__}")
        if not rows.schema.equals(self.schema):
            self._compare_names(rows.schema.names)
            columns = [_converted(rows.column(field.name), field) for field in self.schema]
            rows = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if rows.column(self.time).null_count:
            raise InvalidQuery(
                f"the time column {self.time!r} has nulls: leave such rows out, or give them a time"
            )
        return rows

    def _compare_names(self, given: list[str]) -> None:
        for more, wanted, problem in (
            (self.schema.names, given, "is missing"),
            (given, self.schema.names, "is too much"),
        ):
            for column in more:
                if column not in wanted:
                    raise InvalidQuery(
                        f"column {column!r} {problem}: the rows have {names_of(given)}, and the stream has "
                        f"{names_of(self.schema.names)}"
                    )

    def empty(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], schema=self.schema)


def names_of(columns: Iterable[str]) -> str:
    return ", ".join(repr(column) for column in columns)


_FAMILIES = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_timestamp,
    lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind),
    lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind),
)


def _converted(column: pa.Array, field: pa.Field) -> pa.Array:
    """Convert a column to the type of `field`, from a type of the same family or from a column of nulls."""
    if column.type == field.type:
        return column
    if pa.types.is_null(column.type) or any(same(column.type) and same(field.type) for same in _FAMILIES):
        try:
            return column.cast(field.type)
        except pa.ArrowException as error:
            raise InvalidQuery(f"column {field.name!r} does not fit into {field.type}: {error}") from error
    raise InvalidQuery(f"column {field.name!r} has type {column.type}: it must be {field.type}")
