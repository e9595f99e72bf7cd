"""The input and output of the process that runs the demo's query. Does not import Spark."""

from __future__ import annotations

import msgspec

from .auth_log import YearAssumption

#: Begins the last line of output if Spark stopped the query; the reason follows.
STOPPED = "the query stopped: "


class QueryPlan(msgspec.Struct, frozen=True):
    """Parameters of a run. `coordinator` is host:port, URIs are Spark's, the others are local paths.

    A run appends to the file `progress`. When all input is read, it writes the file `result`.
    """

    coordinator: str
    input_uri: str
    output_uri: str
    checkpoint_uri: str
    years: YearAssumption
    window_s: int
    delay_s: int
    progress: str
    result: str
    master: str = "local[2,4]"
    partitions: int = 4


class FailureCount(msgspec.Struct, frozen=True, order=True):
    """A row of the result: failed log-ins from `source` in the window that begins at `start` (s since 1970)."""

    start: int
    source: str
    failures: int


class QueryResult(msgspec.Struct, frozen=True):
    """The rows read back from the stream's output, and the rows of the batch; both sorted."""

    streamed: list[FailureCount]
    batch: list[FailureCount]
