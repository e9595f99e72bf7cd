"""Bounds of the memory and the time that a node uses."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from peacefs.dataflow.limits import dataflow_state_bytes_max
from peacefs.dataflow.model.numbers import is_number
from peacefs.protocol import limits
from peacefs.protocol.errors import InvalidQuery
from peacefs.protocol.limits import KIB, MIB

# Credit of a producer before its consumer has processed anything.
dataflow_credit_bytes: Final = 4 * MIB
# Bytes of rows that an output keeps for replay. Above that, its unit waits.
dataflow_buffer_bytes_max: Final = 256 * MIB
dataflow_heartbeat_s: Final = 0.2
# Time after which a request to a producer that does not answer is repeated.
dataflow_subscribe_retry_s: Final = 1.0
# Bytes of an output's rows that consumers' states may depend on. Above that, the query stops.
dataflow_retained_bytes_max: Final = 1024 * MIB
dataflow_page_bytes: Final = 64 * KIB
# If the turn of a checkpoint is further away than this, the checkpoint is cancelled and a new one is captured
# later.
dataflow_checkpoint_patience_s: Final = 2.0
# Maximum number of batches that a unit processes before its node looks at messages and the time again.
dataflow_events_per_turn: Final = 32


@dataclass(frozen=True)
class BufferBounds:
    """Maximum bytes of rows that the edges of a unit keep. Derived from `Bounds`."""

    credit_bytes: int
    buffer_bytes_max: int
    retained_bytes_max: int


@dataclass(frozen=True)
class Bounds:
    """Bounds of the memory and the time that a node uses."""

    credit_bytes: int = dataflow_credit_bytes
    buffer_bytes_max: int = dataflow_buffer_bytes_max
    heartbeat_s: float = dataflow_heartbeat_s
    subscribe_retry_s: float = dataflow_subscribe_retry_s
    state_bytes_max: int = dataflow_state_bytes_max
    page_bytes: int = dataflow_page_bytes
    checkpoint_patience_s: float = dataflow_checkpoint_patience_s
    retained_bytes_max: int = dataflow_retained_bytes_max
    #: Maximum number of events of a unit before its node looks at messages again, so that the node is not silent
    #: for long.
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
            whole = isinstance(each.default, int)
            if not is_number(value, whole=whole) or not value > 0:
                number = "a whole number above 0" if whole else "above 0"
                raise InvalidQuery(f"Bounds({each.name}={value!r}): it must be {number}")
