"""The windows of one operator, as checkpoints see them: which have changed, what they contain, and loading that.

The operator does not know that it is watched: what it calls its structures stands here, for each kind of operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from peacefs.dataflow.operators.interface import Operator
from peacefs.dataflow.unit_state.interface import Accumulator, Groups, RowQueue

from .footprints import Footprints
from .replay import Replay

EARLIEST_BUCKET = -(2**62)


class WindowContents(Protocol):
    #: The columns by which a window is known, and those of its state. Empty before its structures are made.
    ids: pa.Schema
    state: pa.Schema

    def groups(self, name: str, inner: Groups, keys: pa.Schema, accumulators: Sequence[Accumulator]) -> Groups:
        """Return what the operator gets for its structure `name`, which is kept in `inner`."""
        ...

    def rows(self, name: str, inner: RowQueue) -> RowQueue: ...

    def watch(self, operator: Operator) -> Operator:
        """Return an operator that does the same, and leaves out rows that its windows have seen."""
        ...

    def begin(self, footprints: Footprints, replay: Replay | None) -> None:
        """Learn who knows the footprints, before the operator's structures are made, and what is loaded."""
        ...

    @property
    def closed_before(self) -> int:
        """Windows of buckets below this one are closed, without any word of each."""
        ...

    def changed(self) -> pa.Table:
        """Return the windows that have opened or closed since the last call, each once."""
        ...

    def all(self) -> pa.Table:
        """Return all windows that are open."""
        ...

    def contents(self, ids: pa.Table) -> tuple[NDArray[np.bool_], pa.Table]:
        """Return which of some windows are open, and the rows that hold the state of those."""
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

    def groups(self, name: str, inner: Groups, keys: pa.Schema, accumulators: Sequence[Accumulator]) -> Groups:
        return inner

    def rows(self, name: str, inner: RowQueue) -> RowQueue:
        return inner

    def watch(self, operator: Operator) -> Operator:
        return operator

    def begin(self, footprints: Footprints, replay: Replay | None) -> None:
        """Nothing is loaded."""

    def changed(self) -> pa.Table:
        return pa.table({})

    def all(self) -> pa.Table:
        return pa.table({})

    def contents(self, ids: pa.Table) -> tuple[NDArray[np.bool_], pa.Table]:
        return np.zeros(0, np.bool_), pa.table({})

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


def distinct(tables: Sequence[pa.Table], ids: pa.Schema) -> pa.Table:
    """Return each window of some tables once."""
    if not tables:
        return ids.empty_table()
    found = pa.concat_tables(tables).group_by(ids.names, use_threads=False).aggregate([])
    return found.select(ids.names).combine_chunks()
