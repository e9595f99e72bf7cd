"""The type of a stream: the schema of its rows, and the column that holds their times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from peacefs.protocol.errors import InvalidQuery

#: Times are microseconds since 1970, as Spark's are.
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
            raise InvalidQuery(f"the time column {self.time!r} has type {kind}: it has to be {TIME}")

    def require(self, columns: Iterable[str], purpose: str) -> None:
        """Raise InvalidQuery unless the stream has `columns`, which are wanted for `purpose`."""
        for column in columns:
            if column not in self.schema.names:
                raise InvalidQuery(
                    f"{purpose} needs a column {column!r}; the stream has {names_of(self.schema.names)}"
                )

    def empty(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], schema=self.schema)


def names_of(columns: Iterable[str]) -> str:
    return ", ".join(repr(column) for column in columns)
