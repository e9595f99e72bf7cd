"""A driver's reports of its streaming query: the values of `/v1/checkpoints/reports`, which travel as JSON."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import msgspec

from peacefs.protocol.limits import report_text_characters_max

report_durations_max: Final = 64


_Text = Annotated[str, msgspec.Meta(max_length=report_text_characters_max)]


class QueryState(StrEnum):
    """The health of a query."""

    RUNNING = "running"
    #: Stopped by its user, or done.
    ENDED = "ended"
    FAILED = "failed"


class BatchReport(msgspec.Struct, frozen=True):
    """The last batch that is done. Durations in ms, as Spark names them; of state the mean over its stores."""

    batch: int
    rows: int
    rows_per_second: float
    durations_ms: Annotated[dict[_Text, int], msgspec.Meta(max_length=report_durations_max)]
    offsets_ms: int
    commits_ms: int
    state_ms: float

    @property
    def checkpoint_ms(self) -> float:
        """Spent on writing the checkpoint."""
        return self.offsets_ms + self.commits_ms + self.state_ms


class QueryReport(msgspec.Struct, frozen=True):
    """`location` is the path of the checkpoint's root, or that of its run; `query` is Spark's id of it.

    `dropped` counts reports that never came because the coordinator was away or slow.
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
    #: When the coordinator heard it, by its clock, in ms since 1970. What a driver says of it does not count.
    reported_ms: int = 0
