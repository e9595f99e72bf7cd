"""The state of an HA unit, as its operators see it and as a checkpoint takes it.

An operator calls `cell`, `rows`, `groups` or `mapping` for each of its structures, always in the same way; if the
unit was loaded from a checkpoint, the structure has the contents that it had then.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Literal, Protocol

import pyarrow as pa

Merge = Literal["sum", "min", "max"]


class Cell(Protocol):
    """One value: None, a bool, a number, a string, bytes, or lists of those."""

    def get(self) -> Any: ...

    def set(self, value: Any) -> None: ...


class RowQueue(Protocol):
    """Rows of one schema in the order in which they were appended."""

    def append(self, rows: pa.RecordBatch) -> None: ...

    def table(self) -> pa.Table: ...

    def replace(self, rows: pa.Table) -> None:
        """Put `rows` into the place of all that were there."""
        ...


class Groups(Protocol):
    """Partial aggregates by bucket and key. A bucket is a number, as of a pane of a window."""

    def merge(self, partials: pa.RecordBatch) -> None:
        """Merge rows of (bucket, key columns, accumulators) into those that are there."""
        ...

    def buckets(self) -> Sequence[int]:
        """Return the buckets that have rows, in order."""
        ...

    def between(self, first: int, end: int) -> pa.Table:
        """Return (key columns, accumulators) merged over the buckets from `first` to before `end`."""
        ...

    def drop_before(self, bucket: int) -> None: ...


class StateCapture(Protocol):
    """The state at one moment. It stays as it is while operators go on."""

    def parts(self) -> Mapping[str, bytes]:
        """Return the state as named parts of bytes. May take long; it is called while operators go on."""
        ...


class UnitState(Protocol):
    """All structures of one HA unit. Names begin with the operator's."""

    def cell(self, name: str, initial: Any) -> Cell: ...

    def rows(self, name: str, schema: pa.Schema) -> RowQueue: ...

    def groups(self, name: str, keys: pa.Schema, accumulators: Sequence[tuple[pa.Field, Merge]]) -> Groups: ...

    def mapping(self, name: str) -> MutableMapping[Any, Any]:
        """Return a map. Keys and values are what a cell may hold. Values are replaced, never changed in place."""
        ...

    def capture(self) -> StateCapture:
        """Return the state of this moment. Short, since the unit stands still meanwhile."""
        ...
