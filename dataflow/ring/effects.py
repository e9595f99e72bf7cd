"""Effects: orders of the ring's cores to their host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from .messages import RingMessage
from .tokens import Interval


@dataclass(frozen=True, slots=True)
class SendTo:
    """Send a message to a node, or to the edge; in order, and as far as the connection holds."""

    to: str
    message: RingMessage


@dataclass(frozen=True, slots=True)
class Serialise:
    """Call `changes` and `everything`, where there is one, on any thread; then `ReducerCore.serialised`."""

    interval: Interval
    number: int
    changes: Callable[[], tuple[bytes, ...]] | None
    everything: Callable[[], tuple[bytes, ...]] | None


@dataclass(frozen=True, slots=True)
class DeliverRows:
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class AllDelivered:
    """Every mapper has ended, and the sink has all results."""


@dataclass(frozen=True, slots=True)
class LeaveRing:
    """The node has no place on the ring any more, and ends."""

    reason: str


@dataclass(frozen=True, slots=True)
class LossFound:
    """State or tuples of an interval are lost."""

    interval: Interval
    reason: str


@dataclass(frozen=True, slots=True)
class TellUser:
    """Tell whoever runs the query."""

    text: str


RingEffect = SendTo | Serialise | DeliverRows | AllDelivered | LeaveRing | LossFound | TellUser
