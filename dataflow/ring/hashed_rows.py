"""Rows in the order of their keys' places on the ring, so that the rows of an interval are a slice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from .tokens import Hashes, Interval


@dataclass(frozen=True, slots=True)
class HashedRows:
    hashes: Hashes
    rows: pa.RecordBatch

    @classmethod
    def sort(cls, hashes: Hashes, rows: pa.RecordBatch) -> HashedRows:
        order = np.argsort(hashes, kind="stable")
        return cls(hashes[order], rows.take(pa.array(order)))

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def bytes(self) -> int:
        return int(self.rows.nbytes) + int(self.hashes.nbytes)

    def between(self, interval: Interval) -> HashedRows:
        """Return the rows of an interval. Copies none."""
        begin, end = np.searchsorted(self.hashes, [interval.low, interval.high])
        if begin == 0 and end == len(self.hashes):
            return self
        return HashedRows(self.hashes[begin:end], self.rows.slice(begin, end - begin))

    @classmethod
    def join(cls, parts: list[HashedRows]) -> HashedRows:
        """Join consecutive parts of one batch."""
        if len(parts) == 1:
            return parts[0]
        table = pa.Table.from_batches([part.rows for part in parts]).combine_chunks()
        rows = table.to_batches()[0] if table.num_rows else parts[0].rows
        return cls(np.concatenate([part.hashes for part in parts]), rows)


NO_ROWS = HashedRows(np.empty(0, np.int64), pa.RecordBatch.from_pylist([], schema=pa.schema([])))
