"""A driver's reports of its streaming query: the values of `/v1/checkpoints/reports`, as JSON."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import msgspec

from peacefs.protocol.limits import report_text_characters_max

report_durations_max: Final = 64


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


class QueryReport(msgspec.Struct, frozen=True):
    """`location` is the path of the checkpoint's root or of its run; `query` is Spark's query id.

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
    #: When the coordinator received the report, in ms since 1970. The driver's value is ignored.
    reported_ms: int = 0
