"""Aggregates a batch with Arrow before its groups go into a map, if that is exact and saves time.

It saves time if a batch has many rows per key. Floating-point sums are not combined: they must be added row by
row, so that they do not depend on how rows were cut into batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from .interface import Accumulator

# A batch with at least this many rows is aggregated before it goes into groups. If the number of groups was above
# this share of its rows, the following batches (this many) are not aggregated.
dataflow_combined_rows_min: Final = 1024
dataflow_combined_share_max: Final = 0.3
dataflow_uncombined_batches: Final = 63


#: Arrow's aggregation for each kind of accumulator.
_AGGREGATIONS = {"rows": "count_all", "values": "count", "sum": "sum", "part": "sum", "min": "min", "max": "max"}


class Combiner:
    def __init__(self, accumulators: Sequence[Accumulator]) -> None:
        self._accumulators = tuple(accumulators)
        self._exact = all(
            each.operation in _AGGREGATIONS and not (each.operation == "sum" and pa.types.is_floating(each.type))
            for each in accumulators
        )
        # Number of batches to skip, after a batch that had too many groups.
        self._waiting = 0

    def combine(self, rows: pa.RecordBatch, keys: Sequence[str]) -> pa.Table | None:
        """Return a row per key, with the accumulators over its rows; None if combining is not worthwhile."""
        if not self._exact or not keys or rows.num_rows < dataflow_combined_rows_min:
            return None
        if self._waiting:
            self._waiting -= 1
            return None
        wanted: list[tuple[Any, str]] = [
            ([] if each.operation == "rows" else each.column, _AGGREGATIONS[each.operation])
            for each in self._accumulators
        ]
        made = pa.Table.from_batches([rows]).group_by(list(keys), use_threads=False).aggregate(wanted)
        if made.num_rows > rows.num_rows * dataflow_combined_share_max:
            self._waiting = dataflow_uncombined_batches
        return made.rename_columns([*keys, *(each.name for each in self._accumulators)]).combine_chunks()
