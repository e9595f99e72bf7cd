"""Times of rows as whole microseconds: taken from rows, their running maxima, and rows made with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from .interface import Rows

Times: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]

#: Earlier than every row, and far enough from the lowest number that windows can be subtracted from it.
EARLIEST_US = -(2**61)


def times_of(rows: Rows, column: str) -> Times:
    times: Times = rows.column(column).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return times


def running_maxima(times: Times, before: int) -> Times:
    """Return for each row the latest time up to it, where `before` was the latest of the rows before."""
    maxima: Times = np.maximum(np.maximum.accumulate(times), before)
    return maxima


def batches_of(rows: Sequence[Sequence[Any]], schema: pa.Schema, time: str) -> Iterable[Rows]:
    """Return rows of Python values as one batch, or none; those of the column `time` are microseconds."""
    if not rows:
        return ()
    arrays = [
        pa.array(list(values), pa.int64()).cast(field.type)
        if field.name == time
        else pa.array(list(values), field.type)
        for field, values in zip(schema, zip(*rows, strict=True), strict=True)
    ]
    return (pa.RecordBatch.from_arrays(arrays, schema=schema),)
