"""Bounds of the memory and the time that a node takes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from peacefs.dataflow.limits import dataflow_state_bytes_max
from peacefs.dataflow.model.numbers import is_number
from peacefs.protocol import limits
from peacefs.protocol.errors import InvalidQuery
from peacefs.protocol.limits import KIB, MIB

# A consumer lets a producer send so much before it has processed any of it.
dataflow_credit_bytes: Final = 4 * MIB
# Rows that an output keeps for replay; its unit waits when there are more.
dataflow_buffer_bytes_max: Final = 256 * MIB
dataflow_heartbeat_s: Final = 0.2
# A producer that does not answer is asked again after so long.
dataflow_subscribe_retry_s: Final = 1.0
# An output's rows that states of consumers may depend on; the query stops when there are more.
dataflow_retained_bytes_max: Final = 1024 * MIB
dataflow_page_bytes: Final = 64 * KIB
# A checkpoint whose turn is further away is cancelled, and taken afresh after so long.
dataflow_checkpoint_patience_s: Final = 2.0
# A unit processes so many batches before its node looks at messages and the time again.
dataflow_events_per_turn: Final = 32


@dataclass(frozen=True)
class BufferBounds:
    """Bytes of rows that the edges of a unit keep at most. See `Bounds`, from which they come."""

    credit_bytes: int
    buffer_bytes_max: int
    retained_bytes_max: int


@dataclass(frozen=True)
class Bounds:
    """Bounds of the memory and the time that a node takes."""

    credit_bytes: int = dataflow_credit_bytes
    buffer_bytes_max: int = dataflow_buffer_bytes_max
    heartbeat_s: float = dataflow_heartbeat_s
    subscribe_retry_s: float = dataflow_subscribe_retry_s
    state_bytes_max: int = dataflow_state_bytes_max
    page_bytes: int = dataflow_page_bytes
    checkpoint_patience_s: float = dataflow_checkpoint_patience_s
    retained_bytes_max: int = dataflow_retained_bytes_max
    #: Events of a unit after which its node looks at what else there is, so that it is not silent for long.
    events_per_turn: int = dataflow_events_per_turn

    @property
    def of_buffers(self) -> BufferBounds:
        return BufferBounds(self.credit_bytes, self.buffer_bytes_max, self.retained_bytes_max)

    def __post_init__(self) -> None:
        if self.page_bytes not in limits.state_page_bytes_choices:
            sizes = " or ".join(map(str, limits.state_page_bytes_choices))
            raise InvalidQuery(f"Bounds(page_bytes={self.page_bytes!r}): pages have {sizes} bytes")
        for each in fields(self):
            value = getattr(self, each.name)
            if not is_number(value) or not value > 0:
                raise InvalidQuery(f"Bounds({each.name}={value!r}): it has to be above 0")
