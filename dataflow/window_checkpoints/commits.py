"""Commits of a unit to its log, and what is read of a log again: the port between state and storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from peacefs.dataflow.model.batches import Batch
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.state.checkpoints.outcome import RunningCheckpoint

from .control_tuples import CommitDetail


@dataclass
class WindowCommit:
    """A write to the log, whole or not at all: rows of the output, then control tuples."""

    number: int
    #: True if it has all windows: it begins a log of its own, and those before it may go.
    begins: bool
    #: By output, in the order of the unit's plan.
    results: Mapping[str, Sequence[Batch]]
    results_types: Mapping[str, StreamType]
    tuples: pa.RecordBatch
    tuples_type: StreamType
    #: Rows of outputs up to these numbers, and tuples below that one, are not needed any more.
    floors: Mapping[str, int]
    first_tuple: int
    #: Set by the log once it is durable.
    bytes_written: int | None = None


class UnitLog(Protocol):
    def append(self, commit: WindowCommit, running: RunningCheckpoint) -> None:
        """Make a commit durable, on any thread; then tell `running`. After a failure the next one begins anew."""
        ...


@dataclass(frozen=True)
class LoadedLog:
    """The part of a log that was read, back to the oldest footprint of a window that is open."""

    detail: CommitDetail
    #: Places of the commits after `detail.since`, in order.
    commits: Sequence[tuple[int, Mapping[str, Sequence[Any]]]]
    #: Rows of windows that are open, and (window, commit) of those and of windows that have closed.
    windows: pa.Table | None
    seen: pa.Table | None
    results: Mapping[str, Sequence[Batch]]
    #: Control tuples that were read for it: the extent.
    tuples: int = 0
