"""Sequence numbers of rows in partitioned stages, and grains: how order survives a partition (Flux 4.1).

Rows are numbered when they enter the first stage, and keep their numbers from stage to stage. So a reader of
several partitions can restore the order. A *grain* is a run of rows that ends with a *mark*. A mark is a separate
row, sent to every partition, which says that no earlier rows follow. Within a unit each batch is one grain. So it
does not matter how rows were cut in transit, and replicas make the same rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from peacefs.dataflow.model.operator import Rows
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.unit_state.operator_state import OperatorState

SEQUENCE = "__sequence"
#: The second part of a compound number: the second row of a pair, or the index among the rows made from one row.
WITHIN = "__within"
HIDDEN = (SEQUENCE, WITHIN)
#: The value of `WITHIN` in a mark. It sorts a mark after all rows with its number.
MARK = 2**62

Numbers: TypeAlias = NDArray[np.int64]


def sequenced(kind: StreamType) -> StreamType:
    """Return the type of a stream with the columns of sequence numbers added."""
    schema = kind.schema
    for name in HIDDEN:
        schema = schema.append(pa.field(name, pa.int64()))
    return StreamType(schema, kind.time)


def plain(kind: StreamType) -> StreamType:
    return StreamType(pa.schema([field for field in kind.schema if field.name not in HIDDEN]), kind.time)


def numbers_of(rows: Rows, column: str) -> Numbers:
    found: Numbers = rows.column(column).to_numpy(zero_copy_only=False)
    return found


def with_numbers(rows: Rows, sequence: Numbers, within: Numbers) -> Rows:
    return rows.append_column(SEQUENCE, pa.array(sequence)).append_column(WITHIN, pa.array(within))


def without_numbers(rows: Rows) -> Rows:
    return rows.select([name for name in rows.schema.names if name not in HIDDEN])


def marks(schema: pa.Schema, sequence: Sequence[int]) -> Rows:
    """Return marks as rows of a schema that has sequence numbers."""
    given = {SEQUENCE: pa.array(sequence, pa.int64()), WITHIN: pa.array([MARK] * len(sequence), pa.int64())}
    columns = [given.get(field.name) for field in schema]
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(len(sequence), field.type) if column is None else column
            for field, column in zip(schema, columns, strict=True)
        ],
        schema=schema,
    )


def one_batch(schema: pa.Schema, batches: Sequence[Rows]) -> Rows:
    """Combine batches into one."""
    if len(batches) == 1:
        return batches[0]
    made = pa.Table.from_batches(batches, schema).combine_chunks().to_batches()
    return made[0] if made else pa.RecordBatch.from_pylist([], schema=schema)


class Grains:
    """Collects rows of several inputs, in any pieces, and returns them one grain of every input at a time."""

    def __init__(self, state: OperatorState, schemas: Sequence[pa.Schema]) -> None:
        self._schemas = schemas
        self._rows = [state.rows(f"input {port}", schema) for port, schema in enumerate(schemas)]
        self._ended = state.cell("ended", [False] * len(schemas))
        # For each input, the lengths of its complete grains.
        self._whole = [deque(_lengths(rows.table())) for rows in self._rows]

    def add(self, port: int, rows: Rows) -> None:
        rest = self._rows[port].table().num_rows - sum(self._whole[port])
        ends = np.flatnonzero(numbers_of(rows, WITHIN) == MARK) + 1
        if len(ends):
            lengths = np.diff(ends, prepend=0)
            lengths[0] += rest
            self._whole[port].extend(lengths.tolist())
        self._rows[port].append(rows)

    def end(self, port: int) -> None:
        ended = list(self._ended.get())
        ended[port] = True
        self._ended.set(ended)

    def has_ended(self, port: int) -> bool:
        """Return True if an input has no grain left and will get none."""
        return bool(self._ended.get()[port]) and not self._whole[port]

    def take(self) -> Iterator[tuple[int, Rows]]:
        """Take the next grain of each input that has not ended. Return nothing if a grain is still missing."""
        if not self.ready:
            return
        for port, lengths in enumerate(self._whole):
            if lengths:
                length = lengths.popleft()
                grain = self._rows[port].table().slice(0, length)
                self._rows[port].drop(length)
                yield port, one_batch(self._schemas[port], grain.to_batches())

    @property
    def settled(self) -> bool:
        """True if each input has a grain, or has ended."""
        return all(lengths or self.has_ended(port) for port, lengths in enumerate(self._whole))

    @property
    def ready(self) -> bool:
        """True if `take` would return grains."""
        return any(self._whole) and self.settled


def _lengths(rows: pa.Table) -> list[int]:
    ends = np.flatnonzero(rows.column(WITHIN).to_numpy() == MARK) + 1
    lengths: list[int] = np.diff(ends, prepend=0).tolist()
    return lengths
