"""The state of an HA unit, as its operators and its checkpoints see it.

An operator calls `cell`, `rows`, `groups`, `table` or `mapping` for each of its structures, always with the same
arguments. If the unit was loaded from a checkpoint, the structure has the contents of that checkpoint.
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

#: Prefix of the name of an output's rows in a state. The stream's name follows.
ROWS_OF: Final = "rows of "


@dataclass(frozen=True)
class Accumulator:
    """A value that is kept per key: the number of rows, the number of values that are not null, their sum, ...

    A `part` is a sum that is 0, and not null, if there are no values. A `noted` accumulator is not changed by
    rows: it is 0 until it is `put`.
    """

    name: str
    operation: Literal["rows", "values", "sum", "part", "min", "max", "last", "noted"]
    type: pa.DataType
    column: str | None = None

    @property
    def merge(self) -> Literal["sum", "min", "max", "last"]:
        """The operation that merges two values of this accumulator."""
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
    """Rows of one schema, in the order in which they were appended."""

    def append(self, rows: pa.RecordBatch) -> None: ...

    def table(self) -> pa.Table: ...

    def drop(self, count: int) -> None:
        """Remove the first `count` rows."""
        ...

    def replace(self, rows: pa.Table) -> None:
        """Replace all rows by `rows`."""
        ...


class NumberedRows(Protocol):
    """Rows of an output that may be sent again, in batches by the number of their first row."""

    def append(self, first: int, rows: pa.RecordBatch) -> None: ...

    def drop_before(self, number: int) -> None:
        """Remove the batches whose numbers are all below `number`."""
        ...

    def __iter__(self) -> Iterator[tuple[int, pa.RecordBatch]]: ...


class Groups(Protocol):
    """Accumulators by bucket and key. A bucket is a number, such as that of a window's pane."""

    def add(self, bucket: int, rows: pa.RecordBatch) -> None:
        """Add rows to a bucket. They have the key columns and the aggregated columns. Nulls are no values."""
        ...

    def admit(self, bucket: int, rows: pa.RecordBatch) -> pa.Table:
        """Add rows, and return the distinct keys that the bucket did not have."""
        ...

    def put(self, bucket: int, rows: pa.RecordBatch) -> None:
        """Replace the accumulators of distinct keys in a bucket. Null means that there are no values."""
        ...

    def size(self, bucket: int) -> int:
        """Return the number of keys in a bucket."""
        ...

    def buckets(self) -> Sequence[int]:
        """Return the buckets that have rows, in order."""
        ...

    def between(self, first: int, end: int) -> pa.Table:
        """Return the key columns and accumulators, merged over the buckets from `first` to before `end`."""
        ...

    def find(self, bucket: int, keys: pa.Table) -> pa.Table:
        """Return a row per key with its accumulators in one bucket; null if the bucket does not have the key."""
        ...

    def remove(self, bucket: int, keys: pa.Table) -> None:
        """Remove keys from a bucket. Missing keys are ignored."""
        ...

    def drop_before(self, bucket: int) -> None: ...

    def clear(self) -> None: ...


class ValueMap(MutableMapping[Any, Any], ABC):
    """A map of Python values. Values are replaced, never changed in place."""

    @abstractmethod
    def find_all(self, keys: Sequence[Any]) -> list[Any]:
        """Return the value of each key, or None. One call for many keys is much faster than many calls."""


class StateCapture(Protocol):
    """The state at one moment. It does not change while operators continue, until it is written or cancelled.

    All methods must be called on the thread of the unit.
    """

    @property
    def pause_s(self) -> float: ...

    def start(self, *, patience_s: float | None = None) -> RunningCheckpoint:
        """Begin to write. If the turn of the capture is further away than `patience_s`, cancel it (SGuard 5)."""
        ...

    def cancel(self) -> None:
        """Discard the capture. Its changes since the last checkpoint go into the next one."""
        ...


class UnitJournal(Protocol):
    """The part of a state that follows what its unit processes, for states that log windows one by one."""

    @property
    def replaying(self) -> bool:
        """True while rows that were processed before are replayed. Their output was emitted then."""
        ...

    @property
    def covered(self) -> Mapping[str, Position]:
        """The positions of the inputs up to which no row is needed, whatever fails."""
        ...

    def watch(self, name: str, operator: Operator) -> Operator:
        """Return the operator to run in place of `operator`."""
        ...

    def cuts(self, stream: str) -> Sequence[int]:
        """Return the numbers of the rows of an input after which its batches must be cut."""
        ...

    def holds(self, stream: str, number: int) -> bool:
        """Return True if a row of an input must wait for rows of other inputs."""
        ...

    def holds_end(self, stream: str) -> bool: ...

    def enter(self, stream: str, number: int, *, ended: bool = False) -> None:
        """Note that the rows of an input up to a number, or its end, are processed now."""
        ...


class UnitState(Protocol):
    """All structures of one HA unit. Their names begin with the operator's name."""

    def cell(self, name: str, initial: Any) -> Cell: ...

    def rows(self, name: str, schema: pa.Schema) -> RowQueue: ...

    def numbered_rows(self, name: str, schema: pa.Schema) -> NumberedRows: ...

    def groups(self, name: str, keys: pa.Schema, accumulators: Sequence[Accumulator]) -> Groups: ...

    def table(self, name: str, schema: pa.Schema, key: Sequence[str]) -> UnorderedMap:
        """Return a map of records in pages, indexed by the key columns."""
        ...

    def mapping(self, name: str) -> ValueMap:
        """Return a map of Python values."""
        ...

    def capture(self, sequence: int, edges: Mapping[str, Any], *, full: bool = False) -> StateCapture:
        """Return the present state, with the unit's edges. Must be quick, since the unit is stopped meanwhile.

        `full`: also write what did not change since the last capture.
        """
        ...

    @property
    def uncovered_rows(self) -> int:
        """Number of input rows that producers would send again if the unit failed after the last capture."""
        ...

    def hurry(self) -> None:
        """Make the next capture cover as much as possible, even if it takes longer."""

    @property
    def journal(self) -> UnitJournal | None: ...

    @property
    def memory_bytes(self) -> int:
        """Bytes of all structures, including copies that a checkpoint still needs."""
        ...

    def edges(self) -> Mapping[str, Any] | None:
        """Return the edges from the checkpoint with which the unit begins; None if there is none."""
        ...
