"""The windows of one operator, as checkpoints see them: which have changed, their contents, and how to load them.

The operator does not know that it is watched. There is a module for each kind of operator, which intercepts the
operator's calls of its structures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from peacefs.dataflow.model.operator import Operator
from peacefs.dataflow.unit_state.interface import Accumulator, Groups, RowQueue

from .replay import Replay

EARLIEST_BUCKET = -(2**62)


@dataclass(frozen=True)
class WindowChanges:
    """The distinct windows that have opened or closed since a commit. Windows that did both are left out."""

    opened: pa.Table
    #: The state of the opened windows, in one or more rows each.
    rows: pa.Table
    #: Windows that closed one by one, if they had a footprint and are not open again.
    closed: pa.Table
    #: The commits that had the footprints of closed windows, even if these are open again.
    left: NDArray[np.int64]


class WindowContents(Protocol):
    #: The columns that identify a window, and the columns of its state. Empty before its structures are made.
    ids: pa.Schema
    state: pa.Schema

    def accumulators(self, name: str, wanted: Sequence[Accumulator]) -> Sequence[Accumulator]:
        """Return the accumulators of the structure `name`: the `wanted` ones, and those for checkpoints."""
        ...

    def groups(self, name: str, inner: Groups, keys: pa.Schema, accumulators: Sequence[Accumulator]) -> Groups:
        """Return what the operator uses as its structure `name`. The data is kept in `inner`."""
        ...

    def rows(self, name: str, inner: RowQueue) -> RowQueue: ...

    def watch(self, operator: Operator) -> Operator:
        """Return an operator that does the same, but skips rows that their windows have seen."""
        ...

    def begin(self, replay: Replay) -> None:
        """Set the loaded windows, before the operator's structures are made."""
        ...

    @property
    def closed_before(self) -> int:
        """Windows of buckets below this one are closed, without separate tuples."""
        ...

    def changes(self, commit: int) -> WindowChanges:
        """Return the changes since the previous commit. The opened windows get their footprints in this commit."""
        ...

    def all(self, commit: int) -> tuple[pa.Table, pa.Table]:
        """Return all open windows, and rows of their state. All get their footprints in this commit."""
        ...

    def with_footprint(self, ids: pa.Table, commit: int) -> pa.Table:
        """Return the windows in `ids` that are open and have their footprints in `commit`."""
        ...

    def check(self, ids: pa.Table, commit: int) -> pa.Table:
        """Return rows of the state of open windows, which have their footprints in `commit` from now on."""
        ...

    def marks(self) -> Mapping[str, Any]:
        """Return what `reaches_back_to` needs to know later about this moment."""
        ...

    def reaches_back_to(self, marks: Mapping[str, Any]) -> bool:
        """Return True if a replay from the moment of `marks` can restore everything that the operator has."""
        ...


class NoContents:
    """The contents of a unit without windows: nothing to load, and nothing to replay."""

    ids = pa.schema([])
    state = pa.schema([])
    closed_before = EARLIEST_BUCKET

    def accumulators(self, name: str, wanted: Sequence[Accumulator]) -> Sequence[Accumulator]:
        return wanted

    def groups(self, name: str, inner: Groups, keys: pa.Schema, accumulators: Sequence[Accumulator]) -> Groups:
        return inner

    def rows(self, name: str, inner: RowQueue) -> RowQueue:
        return inner

    def watch(self, operator: Operator) -> Operator:
        return operator

    def begin(self, replay: Replay) -> None:
        """Do nothing: there are no loaded windows."""

    def changes(self, commit: int) -> WindowChanges:
        none = pa.table({})
        return WindowChanges(none, none, none, np.zeros(0, np.int64))

    def all(self, commit: int) -> tuple[pa.Table, pa.Table]:
        return pa.table({}), pa.table({})

    def with_footprint(self, ids: pa.Table, commit: int) -> pa.Table:
        return ids

    def check(self, ids: pa.Table, commit: int) -> pa.Table:
        return ids

    def marks(self) -> Mapping[str, Any]:
        return {}

    def reaches_back_to(self, marks: Mapping[str, Any]) -> bool:
        return True


class WatchedGroups:
    """Groups that pass all calls on. A base class for groups that watch some calls."""

    def __init__(self, inner: Groups) -> None:
        self._inner = inner

    def add(self, bucket: int, rows: pa.RecordBatch) -> None:
        self._inner.add(bucket, rows)

    def admit(self, bucket: int, rows: pa.RecordBatch) -> pa.Table:
        return self._inner.admit(bucket, rows)

    def put(self, bucket: int, rows: pa.RecordBatch) -> None:
        self._inner.put(bucket, rows)

    def size(self, bucket: int) -> int:
        return self._inner.size(bucket)

    def buckets(self) -> Sequence[int]:
        return self._inner.buckets()

    def between(self, first: int, end: int) -> pa.Table:
        return self._inner.between(first, end)

    def find(self, bucket: int, keys: pa.Table) -> pa.Table:
        return self._inner.find(bucket, keys)

    def remove(self, bucket: int, keys: pa.Table) -> None:
        self._inner.remove(bucket, keys)

    def drop_before(self, bucket: int) -> None:
        self._inner.drop_before(bucket)

    def clear(self) -> None:
        self._inner.clear()
