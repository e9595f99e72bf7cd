"""The windows of one operator, as checkpoints see them: which have changed, what they contain, and loading that.

The operator does not know that it is watched: what it calls its structures stands here, for each kind of operator.
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
    """Windows that have opened and closed since a commit, each once, but those that have done both."""

    opened: pa.Table
    #: The state of those that have opened, in one or more rows each.
    rows: pa.Table
    #: Windows that closed one by one, if they had a footprint and are not open again.
    closed: pa.Table
    #: The commits in which closed windows, open again or not, had their footprints.
    left: NDArray[np.int64]


class WindowContents(Protocol):
    #: The columns by which a window is known, and those of its state. Empty before its structures are made.
    ids: pa.Schema
    state: pa.Schema

    def accumulators(self, name: str, wanted: Sequence[Accumulator]) -> Sequence[Accumulator]:
        """Return what is kept in the operator's structure `name`: what it wants, and what checkpoints do."""
        ...

    def groups(self, name: str, inner: Groups, keys: pa.Schema, accumulators: Sequence[Accumulator]) -> Groups:
        """Return what the operator gets for its structure `name`, which is kept in `inner`."""
        ...

    def rows(self, name: str, inner: RowQueue) -> RowQueue: ...

    def watch(self, operator: Operator) -> Operator:
        """Return an operator that does the same, and leaves out rows that its windows have seen."""
        ...

    def begin(self, replay: Replay) -> None:
        """Learn what is loaded, before the operator's structures are made."""
        ...

    @property
    def closed_before(self) -> int:
        """Windows of buckets below this one are closed, without any word of each."""
        ...

    def changes(self, commit: int) -> WindowChanges:
        """Return what has changed since the commit before; windows that have opened have a footprint in this."""
        ...

    def all(self, commit: int) -> tuple[pa.Table, pa.Table]:
        """Return all windows that are open, with rows of their state; all have their footprints in this commit."""
        ...

    def with_footprint(self, ids: pa.Table, commit: int) -> pa.Table:
        """Return those of some windows that are open and have their footprints in a commit."""
        ...

    def check(self, ids: pa.Table, commit: int) -> pa.Table:
        """Return rows of the state of windows that are open, and have their footprints in a commit from now on."""
        ...

    def marks(self) -> Mapping[str, Any]:
        """Return what is to be known later of this moment, for `needed_since`."""
        ...

    def reaches_back_to(self, marks: Mapping[str, Any]) -> bool:
        """Return whether all that the operator has can be had by replay from the moment of `marks`."""
        ...


class NoContents:
    """A unit without windows: nothing is to be loaded, and nothing to be replayed."""

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
        """Nothing is loaded."""

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
    """Groups that pass everything on: a beginning for those that watch some of it."""

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
