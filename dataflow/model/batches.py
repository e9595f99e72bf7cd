"""Batches of a stream: Arrow record batches whose rows are numbered without gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa


class Position(NamedTuple):
    """A place on a stream: the number of the last row before it, within one numbering.

    A stream is numbered from 1. A producer that starts over without its past, or whose rows after a failure are
    not to be taken for the same as those before it, begins another numbering: `lineage` tells them apart.
    """

    lineage: int
    number: int


#: Before every row.
START = Position(0, 0)
#: In no numbering: a producer that is asked for the rows after it gives the oldest that it has.
OLDEST = Position(-1, 0)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows with the numbers `first` to `last`. A tuple of the papers is a row here, as in Spark."""

    first: int
    rows: pa.RecordBatch

    def __post_init__(self) -> None:
        assert self.first >= 1
        assert self.rows.num_rows > 0, "a batch without rows has no numbers"

    @property
    def last(self) -> int:
        return self.first + int(self.rows.num_rows) - 1

    @property
    def bytes(self) -> int:
        return int(self.rows.nbytes)

    def between(self, first: int, last: int) -> Batch | None:
        """Return the part with numbers from `first` to `last`; None if there is none. Copies no rows."""
        first, last = max(first, self.first), min(last, self.last)
        if first > last:
            return None
        if (first, last) == (self.first, self.last):
            return self
        return Batch(first, self.rows.slice(first - self.first, last - first + 1))

    def after(self, number: int) -> Batch | None:
        """Return the part with numbers above `number`; None if there is none."""
        return self.between(number + 1, self.last)
