"""List, Queue and Deque: records of fixed width in a chain of pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSequence
from typing import Any, ClassVar, Final, Self, overload

import numpy as np
import pyarrow as pa

from peacefs.protocol.errors import RecordRefused
from peacefs.state.kernels.places import NO_PAGE
from peacefs.state.limits import state_scan_records
from peacefs.state.pages.page_set import PageSet

from .chain import Chain
from .columns import Column
from .records import RowLayout, Words
from .structure import Structure

# Index into `_saved`: the first page of the chain.
_HEAD: Final = 0


class _Chained(Structure):
    """The base of List, Queue and Deque. A record of one column is a plain value in Python, else a tuple."""

    def __init__(self, page_set: PageSet, schema: pa.Schema, key: tuple[str, ...] = ()) -> None:
        super().__init__(page_set, schema, key)
        self._row = RowLayout([Column(field) for field in schema])
        if not self._row.columns:
            raise RecordRefused("the schema has no columns")
        self._chain = Chain(page_set, self._row.words)
        if self._chain.capacity < 1:
            raise RecordRefused(
                f"a record of {self._row.words * 8} bytes does not fit into a page: give larger pages"
            )

    @classmethod
    def create(cls, page_set: PageSet, schema: pa.Schema) -> Self:
        """Create one in a page set, or adopt the one that was recovered with the page set.

        Raises SchemaMismatch if the recovered one differs in kind or schema, RecordRefused for unsupported types.
        """
        return cls._create(page_set, schema)

    def __len__(self) -> int:
        return self._chain.length

    def __iter__(self) -> Iterator[Any]:
        for piece in self._chain.pieces(0, self._chain.length):
            for row in piece:
                yield self._row.unpack_one(row)

    def scan(self, batch_records: int = state_scan_records) -> Iterator[pa.RecordBatch]:
        """Yield all records in order, in batches of `batch_records`. They must not change meanwhile."""
        for start in range(0, len(self), batch_records):
            yield self._batch(self._chain.rows(start, min(start + batch_records, len(self))))

    def clear(self) -> None:
        """Remove all records and release their pages."""
        self._pages.settle()
        self._chain.clear()

    def _append_batch(self, given: Any) -> None:
        rows = self._row.pack(given)
        self._pages.settle()
        self._chain.append(rows)

    def _append_one(self, value: Any) -> None:
        row = self._row.pack_one(value).reshape(1, -1)
        self._pages.settle()
        self._chain.append(row)

    def _take(self, start: int, stop: int) -> Words:
        self._pages.settle()
        rows = self._chain.rows(start, stop)
        self._chain.delete(start, stop)
        return rows

    def _batch(self, rows: Words) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(self._row.arrow_of(rows), names=self._row.names)

    def _begin(self) -> None:
        self._saved[_HEAD] = NO_PAGE

    def _recover(self) -> None:
        self._chain.recover(int(self._saved[_HEAD]))

    def _before_saving(self) -> None:
        self._saved[_HEAD] = self._chain.head


class List(_Chained, MutableSequence[Any]):
    """Records by position. Appending and reading in order are fast; inserting in the middle moves half a page."""

    kind: ClassVar[str] = "List"

    def extend_batch(self, records: Any) -> None:
        """Append records: a record batch, or columns as Arrow or NumPy arrays. Raises PagesExhausted."""
        self._append_batch(records)

    def slice_batch(self, start: int, stop: int) -> pa.RecordBatch:
        """Return the records from `start` up to, not including, `stop`, as a record batch."""
        start, stop, _ = slice(start, stop).indices(len(self))
        return self._batch(self._chain.rows(start, stop))

    def take_batch(self, positions: Any) -> pa.RecordBatch:
        """Return the records at these positions, as a record batch. Raises IndexError."""
        wanted = np.asarray(positions, np.int64)
        wanted = np.where(wanted < 0, wanted + len(self), wanted)
        if len(wanted) and (wanted.min() < 0 or wanted.max() >= len(self)):
            raise IndexError(f"a position is out of range: there are {len(self)} records")
        return self._batch(self._chain.gather(wanted))

    def put_batch(self, start: int, records: Any) -> None:
        """Replace records, beginning at `start`. Raises IndexError if there are too few."""
        rows = self._row.pack(records)
        if start < 0 or start + len(rows) > len(self):
            raise IndexError(f"{len(rows)} records from {start} on are out of range: there are {len(self)}")
        self._pages.settle()
        self._chain.put(start, rows)

    @overload
    def __getitem__(self, position: int) -> Any: ...
    @overload
    def __getitem__(self, position: slice) -> list[Any]: ...

    def __getitem__(self, position: int | slice) -> Any:
        if isinstance(position, slice):
            return [self[each] for each in range(*position.indices(len(self)))]
        return self._row.unpack_one(self._chain.row(self._checked(position)))

    @overload
    def __setitem__(self, position: int, value: Any) -> None: ...
    @overload
    def __setitem__(self, position: slice, value: Iterable[Any]) -> None: ...

    def __setitem__(self, position: int | slice, value: Any) -> None:
        if isinstance(position, slice):
            start, stop, step = position.indices(len(self))
            if step != 1:
                raise RecordRefused("a slice with a step cannot be assigned to")
            rows = [self._row.pack_one(each) for each in value]
            self._pages.settle()
            self._chain.delete(start, max(start, stop))
            if rows:
                self._chain.insert(start, np.stack(rows))
            return
        row = self._row.pack_one(value).reshape(1, -1)
        at = self._checked(position)
        self._pages.settle()
        self._chain.put(at, row)

    def __delitem__(self, position: int | slice) -> None:
        if not isinstance(position, slice):
            at = self._checked(position)
            self._pages.settle()
            self._chain.delete(at, at + 1)
            return
        self._pages.settle()
        start, stop, step = position.indices(len(self))
        if step == 1:
            self._chain.delete(start, max(start, stop))
            return
        for at in sorted(range(start, stop, step), reverse=True):
            self._chain.delete(at, at + 1)

    def insert(self, index: int, value: Any) -> None:
        """Insert a record before a position, as `list.insert` does."""
        row = self._row.pack_one(value).reshape(1, -1)
        self._pages.settle()
        start, _, _ = slice(index, None).indices(len(self))
        self._chain.insert(start, row)

    def append(self, value: Any) -> None:
        self._append_one(value)

    def _checked(self, position: int) -> int:
        at = position + len(self) if position < 0 else position
        if not 0 <= at < len(self):
            raise IndexError(f"position {position} is out of range: there are {len(self)} records")
        return at


class Queue(_Chained):
    """A FIFO queue."""

    kind: ClassVar[str] = "Queue"

    def push(self, value: Any) -> None:
        """Append a record."""
        self._append_one(value)

    def pop(self) -> Any:
        """Remove and return the first record. Raises IndexError if the queue is empty."""
        if not len(self):
            raise IndexError("the queue is empty")
        return self._row.unpack_one(self._take(0, 1)[0])

    def peek(self) -> Any:
        """Return the first record without removing it. Raises IndexError if the queue is empty."""
        if not len(self):
            raise IndexError("the queue is empty")
        return self._row.unpack_one(self._chain.row(0))

    def push_batch(self, records: Any) -> None:
        """Append records: a record batch, or columns as Arrow or NumPy arrays."""
        self._append_batch(records)

    def pop_batch(self, count: int) -> pa.RecordBatch:
        """Remove and return the first `count` records, or all if there are fewer."""
        return self._batch(self._take(0, min(count, len(self))))

    def peek_batch(self, count: int) -> pa.RecordBatch:
        """Return the first `count` records without removing them, or all if there are fewer."""
        return self._batch(self._chain.rows(0, min(count, len(self))))


class Deque(_Chained):
    """A double-ended queue, like `collections.deque`."""

    kind: ClassVar[str] = "Deque"

    def append(self, value: Any) -> None:
        self._append_one(value)

    def appendleft(self, value: Any) -> None:
        """Insert a record before the first."""
        row = self._row.pack_one(value).reshape(1, -1)
        self._pages.settle()
        self._chain.prepend(row)

    def pop(self) -> Any:
        """Remove and return the last record. Raises IndexError if the deque is empty."""
        if not len(self):
            raise IndexError("the deque is empty")
        return self._row.unpack_one(self._take(len(self) - 1, len(self))[0])

    def popleft(self) -> Any:
        """Remove and return the first record. Raises IndexError if the deque is empty."""
        if not len(self):
            raise IndexError("the deque is empty")
        return self._row.unpack_one(self._take(0, 1)[0])

    def __getitem__(self, position: int) -> Any:
        at = position + len(self) if position < 0 else position
        if not 0 <= at < len(self):
            raise IndexError(f"position {position} is out of range: there are {len(self)} records")
        return self._row.unpack_one(self._chain.row(at))

    def extend_batch(self, records: Any) -> None:
        """Append records: a record batch, or columns as Arrow or NumPy arrays."""
        self._append_batch(records)

    def extendleft_batch(self, records: Any) -> None:
        """Insert records before the first, keeping their order."""
        rows = self._row.pack(records)
        self._pages.settle()
        self._chain.prepend(rows)

    def pop_batch(self, count: int) -> pa.RecordBatch:
        """Remove and return the last `count` records, in order, or all if there are fewer."""
        return self._batch(self._take(max(0, len(self) - count), len(self)))

    def popleft_batch(self, count: int) -> pa.RecordBatch:
        """Remove and return the first `count` records, or all if there are fewer."""
        return self._batch(self._take(0, min(count, len(self))))
