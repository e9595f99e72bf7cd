"""Commits of a unit to its log, and the result of reading a log: the port between state and storage."""

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
    """An atomic write to the log: rows of the outputs, then control tuples."""

    number: int
    #: True if it contains all windows. It then begins a new log, and older logs may be deleted.
    begins: bool
    #: By output, in the order of the unit's plan.
    results: Mapping[str, Sequence[Batch]]
    results_types: Mapping[str, StreamType]
    tuples: pa.RecordBatch
    tuples_type: StreamType
    #: Rows of outputs up to `floors`, and tuples below `first_tuple`, are no longer needed.
    floors: Mapping[str, int]
    first_tuple: int
    #: Set by the log once it is durable.
    bytes_written: int | None = None


class UnitLog(Protocol):
    def append(self, commit: WindowCommit, running: RunningCheckpoint) -> None:
        """Make a commit durable, on any thread; then tell `running`.

        After a failure, the next commit begins a new log.
        """
        ...


@dataclass(frozen=True)
class LoadedLog:
    """The part of a log that was read, back to the oldest footprint of an open window."""

    detail: CommitDetail
    #: The places of the commits after `detail.since`, in order.
    commits: Sequence[tuple[int, Mapping[str, Sequence[Any]]]]
    #: Rows of the open windows. Then (window, commit) pairs of the windows that are open or have closed.
    windows: pa.Table | None
    seen: pa.Table | None
    results: Mapping[str, Sequence[Batch]]
    #: Number of control tuples that were read: the extent.
    tuples: int = 0
