"""The state of an HA unit, as its operators see it and as a checkpoint takes it.

An operator calls `cell`, `rows`, `groups`, `table` or `mapping` for each of its structures, always in the same
way; if the unit was loaded from a checkpoint, the structure has the contents that it had then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import pyarrow as pa

from peacefs.dataflow.model.batches import Position
from peacefs.dataflow.model.operator import Operator
from peacefs.state.checkpoints.outcome import RunningCheckpoint
from peacefs.state.structures.unordered_map import UnorderedMap

#: The name of an output's rows in a state is this and the stream.
ROWS_OF: Final = "rows of "


@dataclass(frozen=True)
class Accumulator:
    """A value that is kept for each key: the rows, the values of a column that are not null, their sum, ...

    A `part` is a sum that is 0, and not null, where there are no values. Rows do not change one that is `noted`:
    it is 0 until it is put.
    """

    name: str
    operation: Literal["rows", "values", "sum", "part", "min", "max", "last", "noted"]
    type: pa.DataType
    column: str | None = None

    @property
    def merge(self) -> Literal["sum", "min", "max", "last"]:
        """Say how two of them become one."""
        match self.operation:
            case "min" | "max" | "last":
                return self.operation
            case "noted":
                return "max"
            case _:
                return "sum"


class Cell(Protocol):
    """One value: None, a bool, a number, a string, bytes, or lists of those."""

    def get(self) -> Any: ...

    def set(self, value: Any) -> None: ...


class RowQueue(Protocol):
    """Rows of one schema in the order in which they were appended."""

    def append(self, rows: pa.RecordBatch) -> None: ...

    def table(self) -> pa.Table: ...

    def drop(self, count: int) -> None:
        """Remove the first `count` rows."""
        ...

    def replace(self, rows: pa.Table) -> None:
        """Put `rows` into the place of all that were there."""
        ...


class NumberedRows(Protocol):
    """Rows of an output that may have to be sent again, in batches by the number of their first row."""

    def append(self, first: int, rows: pa.RecordBatch) -> None: ...

    def drop_before(self, number: int) -> None:
        """Remove the batches all of whose numbers are lower."""
        ...

    def __iter__(self) -> Iterator[tuple[int, pa.RecordBatch]]: ...


class Groups(Protocol):
    """Accumulators by bucket and key. A bucket is a number, as of a pane of a window."""

    def add(self, bucket: int, rows: pa.RecordBatch) -> None:
        """Add rows, with key columns and those that are aggregated, to a bucket. Nulls are no values."""
        ...

    def admit(self, bucket: int, rows: pa.RecordBatch) -> pa.Table:
        """Add rows, and return the keys that the bucket did not have, each once."""
        ...

    def put(self, bucket: int, rows: pa.RecordBatch) -> None:
        """Replace the accumulators of keys of a bucket, each once. Null stands for no values."""
        ...

    def size(self, bucket: int) -> int:
        """Return how many keys a bucket has."""
        ...

    def buckets(self) -> Sequence[int]:
        """Return the buckets that have rows, in order."""
        ...

    def between(self, first: int, end: int) -> pa.Table:
        """Return (key columns, accumulators) merged over the buckets from `first` to before `end`."""
        ...

    def find(self, bucket: int, keys: pa.Table) -> pa.Table:
        """Return the accumulators of keys in one bucket, one row for each; null where there is none."""
        ...

    def remove(self, bucket: int, keys: pa.Table) -> None:
        """Remove keys from a bucket, whether they are there or not."""
        ...

    def drop_before(self, bucket: int) -> None: ...

    def clear(self) -> None: ...


class ValueMap(MutableMapping[Any, Any], ABC):
    """A map of Python values, which are replaced, never changed in place."""

    @abstractmethod
    def find_all(self, keys: Sequence[Any]) -> list[Any]:
        """Return the value of each key, None where there is none. Many at once are much faster than one by one."""


class StateCapture(Protocol):
    """The state at one moment, which stays as it is while operators go on, until it is written or cancelled.

    All methods are for the thread of the unit.
    """

    @property
    def pause_s(self) -> float: ...

    def start(self, *, patience_s: float | None = None) -> RunningCheckpoint:
        """Begin to write it. If its turn is further away than `patience_s` it is cancelled (SGuard 5)."""
        ...

    def cancel(self) -> None:
        """Forget it: what it would have held has changed since the checkpoint before."""
        ...


class UnitJournal(Protocol):
    """The part of a state that follows what its unit processes, since it logs windows one by one."""

    @property
    def replaying(self) -> bool:
        """True while rows come that were processed before: what they give was put out then."""
        ...

    @property
    def covered(self) -> Mapping[str, Position]:
        """The places of the inputs up to which no row is needed, whatever fails."""
        ...

    def watch(self, name: str, operator: Operator) -> Operator:
        """Return what runs in the place of an operator."""
        ...

    def cuts(self, stream: str) -> Sequence[int]:
        """Return the rows of an input after which its batches are to be cut."""
        ...

    def holds(self, stream: str, number: int) -> bool:
        """Return whether a row of an input has to wait for rows of others."""
        ...

    def holds_end(self, stream: str) -> bool: ...

    def enter(self, stream: str, number: int, *, ended: bool = False) -> None:
        """Learn that rows of an input up to a number are processed now, or its end."""
        ...


class UnitState(Protocol):
    """All structures of one HA unit. Names begin with the operator's."""

    def cell(self, name: str, initial: Any) -> Cell: ...

    def rows(self, name: str, schema: pa.Schema) -> RowQueue: ...

    def numbered_rows(self, name: str, schema: pa.Schema) -> NumberedRows: ...

    def groups(self, name: str, keys: pa.Schema, accumulators: Sequence[Accumulator]) -> Groups: ...

    def table(self, name: str, schema: pa.Schema, key: Sequence[str]) -> UnorderedMap:
        """Return a map of records in pages, by their key columns."""
        ...

    def mapping(self, name: str) -> ValueMap:
        """Return a map. Keys and values are what a cell may hold."""
        ...

    def capture(self, sequence: int, edges: Mapping[str, Any], *, full: bool = False) -> StateCapture:
        """Return the state of this moment, with the unit's edges. Short, since the unit stands still meanwhile.

        With `full`, what did not change since the last one is written, too.
        """
        ...

    @property
    def uncovered_rows(self) -> int:
        """Rows of all inputs that producers would send again if the unit was lost after the last capture."""
        ...

    def hurry(self) -> None:
        """Have the next capture cover what it can, whatever that costs: producers will soon have no more room."""

    @property
    def journal(self) -> UnitJournal | None: ...

    @property
    def memory_bytes(self) -> int:
        """Bytes of all structures, with the copies that a checkpoint still needs."""
        ...

    def edges(self) -> Mapping[str, Any] | None:
        """Return the edges that the checkpoint had which the unit begins with; None without one."""
        ...
