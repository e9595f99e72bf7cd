"""Finding pairs of rows with equal keys whose times are near, and the rows of a join that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from peacefs.dataflow.model.operator import Rows

from .keys import comparable

#: The greatest time or progress that rows of an input had reached at this row, and its place in the order.
PROGRESS = "__progress"
ORDER = "__order"
# Column names for the indices of rows while keys are joined.
_LEFT, _RIGHT = "__left", "__right"
Places: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
#: The index of a row that is not there.
ABSENT = -1


@dataclass(frozen=True)
class Nearness:
    """When two rows with equal keys are a pair: the right time minus the left one is in `lower_us` to `upper_us`.

    `lateness_us`: how much older than its progress a row may be.
    """

    keys: tuple[str, ...]
    times: tuple[str, str]
    lower_us: int
    upper_us: int
    lateness_us: int

    def wait_us(self, port: int) -> int:
        """Return how far the progress of a row's last partner may be beyond its own; 0 if all come before it."""
        return max(0, (self.upper_us if port == 0 else -self.lower_us) + self.lateness_us)

    def pairs(self, left: pa.Table, right: pa.Table, seen: tuple[int, int]) -> list[Places]:
        """Return the indices of pairs, except pairs of two rows that are both among the first `seen` rows."""
        found = [
            self._equal(left.slice(seen[0]), right, (seen[0], 0)),
            self._equal(left.slice(0, seen[0]), right.slice(seen[1]), (0, seen[1])),
        ]
        places = [np.concatenate([each[port] for each in found]) for port in (0, 1)]
        slack = self.lateness_us
        apart = _apart(left, right, (PROGRESS, PROGRESS), places)
        near = (apart >= self.lower_us - slack) & (apart <= self.upper_us + slack)
        apart = _apart(left, right, self.times, places)
        near &= (apart >= self.lower_us) & (apart <= self.upper_us)
        return [each[near] for each in places]

    def _equal(self, left: pa.Table, right: pa.Table, begin: tuple[int, int]) -> tuple[Places, Places]:
        """Return the indices of rows with equal keys. `begin`: the index of each table's first row."""
        if not left.num_rows or not right.num_rows:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        keys = list(self.keys)
        columns = zip(*(comparable(left.column(key), right.column(key)) for key in keys), strict=True)
        numbered = [
            pa.table(list(given), names=keys).append_column(name, pa.array(np.arange(at, at + len(given[0]))))
            for given, name, at in zip(columns, (_LEFT, _RIGHT), begin, strict=True)
        ]
        joined = numbered[0].join(numbered[1], keys=keys, join_type="inner", use_threads=False)
        return joined.column(_LEFT).to_numpy(), joined.column(_RIGHT).to_numpy()


def joined_rows(
    schema: pa.Schema,
    keys: Sequence[str],
    sides: Sequence[pa.Table],
    times: Sequence[str],
    places: Sequence[Places],
) -> list[Rows]:
    """Return the rows of pairs. A row that is `ABSENT` gives nulls, except for the keys and the time."""
    if not len(places[0]):
        return []
    chosen = [pa.array(at, mask=at == ABSENT) for at in places]

    def column(port: int, name: str) -> pa.ChunkedArray:
        return sides[port].column(name).take(chosen[port])

    only_right = places[0] == ABSENT
    columns = []
    for name in schema.names:
        if name == times[0]:
            columns.append(compute.max_element_wise(column(0, name), column(1, times[1])))
        elif name in keys and only_right.any():
            columns.append(compute.if_else(pa.array(only_right), column(1, name), column(0, name)))
        else:
            columns.append(column(0 if name in sides[0].column_names else 1, name))
    batches: list[Rows] = pa.Table.from_arrays(columns, schema=schema).combine_chunks().to_batches()
    return batches


def _apart(left: pa.Table, right: pa.Table, names: tuple[str, str], places: Sequence[Places]) -> Places:
    """Return the right value minus the left one for each pair, of a time column of each side."""
    values = [
        side.column(name).cast(pa.int64()).to_numpy()[at]
        for side, name, at in zip((left, right), names, places, strict=True)
    ]
    apart: Places = values[1] - values[0]
    return apart
