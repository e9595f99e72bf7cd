"""Effects: orders of the ring's cores to their host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from .messages import RingMessage
from .tokens import Interval


@dataclass(frozen=True, slots=True)
class SendTo:
    """Send a message to a node or the edge. Messages arrive in order unless the connection breaks."""

    to: str
    message: RingMessage


@dataclass(frozen=True, slots=True)
class Serialise:
    """Call `changes` and `everything` (if given) on any thread; then call `ReducerCore.serialised`."""

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
    """The node no longer has a place on the ring, and ends."""

    reason: str


@dataclass(frozen=True, slots=True)
class LossFound:
    """State or tuples of an interval are lost."""

    interval: Interval
    reason: str


@dataclass(frozen=True, slots=True)
class TellUser:
    """Show a message to the user who runs the query."""

    text: str


RingEffect = SendTo | Serialise | DeliverRows | AllDelivered | LeaveRing | LossFound | TellUser
