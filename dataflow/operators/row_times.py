"""Times of rows as integers in microseconds, and their running maxima."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa

from peacefs.dataflow.model.operator import Rows

Times: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]

#: Earlier than every row, and far enough from the minimum that window sizes can be subtracted.
EARLIEST_US = -(2**61)
#: The progress of an input that has ended: later than every row.
ENDED_US = 2**61


def times_of(rows: Rows, column: str) -> Times:
    times: Times = rows.column(column).view(pa.int64()).to_numpy()
    return times


def running_maxima(times: Times, before: int) -> Times:
    """Return for each row the latest time up to it. `before` is the latest time of all earlier rows."""
    maxima: Times = np.maximum(np.maximum.accumulate(times), before)
    return maxima
