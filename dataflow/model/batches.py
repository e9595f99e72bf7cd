"""Batches of a stream: Arrow record batches whose rows are numbered without gaps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa

from peacefs.protocol.errors import OperatorFailed
from peacefs.protocol.limits import MIB

# Larger batches are cut before they are sent. A single row that is longer than this is refused.
dataflow_batch_bytes_max: Final = 16 * MIB
dataflow_row_bytes_max: Final = 128 * MIB


class Position(NamedTuple):
    """A place on a stream: the number of the last row before it, within one numbering.

    A stream is numbered from 1. If a producer starts over without its past, or its rows after a failure must not
    be taken for those before, it begins another numbering. `lineage` distinguishes the numberings.
    """

    lineage: int
    number: int


#: Before the first row.
START = Position(0, 0)
#: Belongs to no numbering. A producer that is asked for the rows after it sends from the oldest row that it has.
OLDEST = Position(-1, 0)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows with the numbers `first` to `last`. What the papers call a tuple is called a row here, as in Spark."""

    first: int
    rows: pa.RecordBatch
    last: int = field(init=False, repr=False, compare=False)
    #: Cached, because Arrow is slow to compute it for small batches.
    _bytes: int = field(default=-1, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rows = self.rows.num_rows
        assert self.first >= 1
        assert rows > 0, "a batch without rows has no numbers"
        object.__setattr__(self, "last", self.first + rows - 1)

    @property
    def bytes(self) -> int:
        if self._bytes < 0:
            object.__setattr__(self, "_bytes", int(self.rows.nbytes))
        return self._bytes

    def between(self, first: int, last: int) -> Batch | None:
        """Return the rows with numbers from `first` to `last`; None if there are none. Copies no rows."""
        first, last = max(first, self.first), min(last, self.last)
        if first > last:
            return None
        if (first, last) == (self.first, self.last):
            return self
        return Batch(first, self.rows.slice(first - self.first, last - first + 1))

    def after(self, number: int) -> Batch | None:
        """Return the rows with numbers above `number`; None if there are none."""
        return self.between(number + 1, self.last)


def pieces(stream: str, batch: Batch) -> Iterator[Batch]:
    """Yield rows in batches that are small enough to be sent. Raises OperatorFailed if one row is too large."""
    if batch.bytes <= dataflow_batch_bytes_max:
        yield batch
    elif batch.first < batch.last:
        half = batch.rows.num_rows // 2
        for part in (batch.between(batch.first, batch.first + half - 1), batch.after(batch.first + half - 1)):
            assert part is not None
            yield from pieces(stream, part)
    elif batch.bytes <= dataflow_row_bytes_max:
        yield batch
    else:
        raise OperatorFailed(
            f"a row of {stream!r} has {batch.bytes:,} bytes, and {dataflow_row_bytes_max:,} can be sent: cut it "
            "into several, or give the name of a file"
        )
