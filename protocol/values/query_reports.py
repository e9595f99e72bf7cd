"""A driver's reports of its streaming query: the values of `/v1/checkpoints/reports`, as JSON."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import msgspec

from peacefs.protocol.limits import report_text_characters_max

report_durations_max: Final = 64
report_units_max: Final = 256


_Text = Annotated[str, msgspec.Meta(max_length=report_text_characters_max)]


class QueryState(StrEnum):
    """The state of a query."""

    RUNNING = "running"
    #: Stopped by its user, or completed.
    ENDED = "ended"
    FAILED = "failed"


class BatchReport(msgspec.Struct, frozen=True):
    """The last completed batch. Durations are in ms and have Spark's names; `state_ms` is a mean over state
    stores.
    """

    batch: int
    rows: int
    rows_per_second: float
    durations_ms: Annotated[dict[_Text, int], msgspec.Meta(max_length=report_durations_max)]
    offsets_ms: int
    commits_ms: int
    state_ms: float

    @property
    def checkpoint_ms(self) -> float:
        return self.offsets_ms + self.commits_ms + self.state_ms


class UnitReport(msgspec.Struct, frozen=True):
    """A unit of a dataflow. Counts are of this run; other figures are of its last checkpoint or recovery.

    `reads` are sources and operators. `node` is empty while the unit runs nowhere. `recovery_ms` is the time from
    the begin of loading to the end of the replay.
    """

    name: _Text
    reads: Annotated[list[_Text], msgspec.Meta(max_length=report_units_max)]
    node: _Text = ""
    checkpoints: int = 0
    checkpoint_bytes: int = 0
    stored_ms: float = 0.0
    pause_ms: float = 0.0
    recoveries: int = 0
    recovery_ms: float = 0.0


class EndReport(msgspec.Struct, frozen=True):
    """A source or a sink of a dataflow. Rates are of the time since the last report.

    `waiting` is the share of that time in which a source had rows and the query had no room for them.
    """

    name: _Text
    rows: int
    rows_per_second: float
    waiting: float = 0.0


class DataflowReport(msgspec.Struct, frozen=True):
    """A dataflow, with up to `report_units_max` units, sources and sinks each. `late_rows` are by operator."""

    units: Annotated[list[UnitReport], msgspec.Meta(max_length=report_units_max)]
    sources: Annotated[list[EndReport], msgspec.Meta(max_length=report_units_max)]
    sinks: Annotated[list[EndReport], msgspec.Meta(max_length=report_units_max)]
    late_rows: Annotated[dict[_Text, int], msgspec.Meta(max_length=report_units_max)]


class QueryReport(msgspec.Struct, frozen=True):
    """`location` is the path of the checkpoint's root or of its run. `query` is Spark's id of the query, or the
    name of a dataflow.

    `dropped` counts reports that the driver could not send because the coordinator was unreachable or slow.
    """

    location: str
    user: _Text
    query: _Text
    name: _Text
    host: _Text
    pid: int
    state: QueryState
    last_batch: BatchReport | None = None
    error: _Text = ""
    dropped: int = 0
    #: Set by dataflows, which have no batches.
    dataflow: DataflowReport | None = None
    #: When the coordinator received the report, in ms since 1970. The driver's value is ignored.
    reported_ms: int = 0
