"""What a driver expects of connectors: repeatable sources, and sinks that commit rows with their number.

A source consists of *parts*, such as the partitions of a topic or the files of a directory. A part is a sequence
that can be read again from a position. A sink commits rows together with the number of the last one, so that after
any failure it can tell which rows it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import msgspec
import pyarrow as pa

from peacefs.dataflow.model.stream_type import StreamType


class Slice(msgspec.Struct, frozen=True):
    """Consecutive rows of one part, from position `begin` to before position `end`."""

    part: str
    begin: int
    end: int
    rows: int
    #: What identifies the contents of the part, such as the size and time of a file.
    stamp: str = ""
    #: True if the part has nothing after this slice.
    last: bool = False


class PartPlace(msgspec.Struct, frozen=True):
    """How far a part was read."""

    end: int
    stamp: str = ""
    last: bool = False


@dataclass(frozen=True)
class Taken:
    """New rows of a source, in the order in which the query gets them."""

    slices: Sequence[tuple[Slice, pa.RecordBatch]] = ()
    #: Parts that do not exist any more. The source can forget that it has read them.
    gone: Sequence[str] = ()
    #: True if no more rows will come.
    ended: bool = False


class PartReader(Protocol):
    """The I/O of a source. Used by one thread."""

    def open(self, identity: str | None, starts: Mapping[str, PartPlace]) -> str:
        """Connect, and return what identifies the source, such as the id of a topic.

        `identity`: what an earlier program returned. `starts`: where to read known parts from: the first slice
        that is wanted again, or else where the part was read to. None and empty for a new query. Raises
        StartupError if this is another source, or if rows after these places are gone.
        """
        ...

    def take(self, places: Mapping[str, PartPlace]) -> Taken:
        """Return new rows. Wait for them for at most a second, then return an empty `Taken`."""
        ...

    def again(self, wanted: Slice) -> pa.RecordBatch:
        """Read a slice again. Raises QueryFailed unless all its rows exist unchanged."""
        ...

    def close(self) -> None: ...


class Journal(Protocol):
    """A small file beside a query's checkpoints in which a source remembers what it has read."""

    def read(self) -> bytes | None: ...

    def write(self, data: bytes) -> None:
        """Replace the file atomically and durably. Raises RunSuperseded if another driver has taken over."""
        ...


@runtime_checkable
class RepeatableSource(Protocol):
    """A source that can repeat its rows in the same order, with the same numbers."""

    @property
    def complete(self) -> bool:
        """False if rows that were given, and not released, are lost when the program dies."""
        ...

    def begin(self, journal: Journal | None) -> int:
        """Connect, and return the number of the row before the first one that iterating gives.

        `journal`: None if the query is never resumed. Raises StartupError.
        """
        ...

    def released(self, number: int) -> None:
        """Forget rows up to `number`: the query will not need them again. Called from another thread."""
        ...

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True)
class SinkOpening:
    """What a sink that commits is told when it connects."""

    #: Names of the query and the sink, for what is stored.
    query: str
    sink: str
    kind: StreamType
    #: Identifies the query among all that use, or have used, the same place: one per directory of checkpoints.
    instance: str
    #: True if the query has not committed anything yet: its first row has the number 1.
    fresh: bool


class Committer(Protocol):
    """The I/O of a sink that commits. Used by one thread at a time.

    `append` prepares rows, which nobody sees yet. `commit` makes them visible together with their number.
    PeerUnreachable and PeerTimeout mean that it can be tried again: `open` then says which rows were committed.
    """

    def open(self, opening: SinkOpening) -> int:
        """Connect, stop earlier writers, drop what they have prepared, and return the number of the last row.

        Raises StartupError, for example if another query has taken over since.
        """
        ...

    def append(self, first: int, rows: pa.RecordBatch) -> None:
        """Prepare rows, numbered from `first`."""
        ...

    def commit(self, number: int) -> None:
        """Commit all prepared rows, of which the last has this number."""
        ...

    def close(self) -> None:
        """Drop prepared rows, and disconnect."""
        ...


@dataclass(frozen=True)
class SinkContext:
    """What a driver tells a sink that commits."""

    opening: SinkOpening
    #: Runs a commit while no other driver can commit. Raises RunSuperseded if a younger driver has taken over.
    fenced: Callable[[Callable[[], None]], None]
    #: Called from the thread of the sink with the number of the last committed row.
    committed: Callable[[int], None]
    #: Called from the thread of the sink, at most once.
    failed: Callable[[BaseException], None]


@runtime_checkable
class CommitsRows(Protocol):
    """A sink whose rows are safe only once it has committed them."""

    def begin(self, context: SinkContext) -> int:
        """Connect, and return the number of the last committed row. Raises StartupError."""
        ...

    def put(self, first: int, rows: pa.RecordBatch) -> None:
        """Take rows. Returns at once."""
        ...

    def flush(self) -> None:
        """Commit soon: no more rows come."""
        ...

    def close(self) -> None:
        """Stop. Rows that are not committed are dropped."""
        ...
