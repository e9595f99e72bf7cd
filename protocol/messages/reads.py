"""Scheduling of checkpoint reads: readers name chunks, and the coordinator limits the reads per datanode.

See decision 14.
"""

from __future__ import annotations

import msgspec

from peacefs.protocol.ids import NodeId

from .base import Message, TracedMessage


class StateReads(TracedMessage, frozen=True):
    """State the chunks of the checkpoint of `token` that a reader wants next, as (its own number, datanodes with a
    replica, nearest first). It reads `at_once` chunks concurrently. Answered by ReadsScheduled: at once, or, with
    `wait_s`, as soon as a read is granted, at the latest after that time.

    Repeated when a chunk is done, and from time to time while the reader reads or waits. `holding` are the grants
    in use, as (its number, datanode); other grants are given back. `reader` is the reader's unique name;
    `waited_s` is how long it has waited.
    """

    token: str
    reader: str
    number: int
    wanted: list[tuple[int, list[NodeId]]]
    holding: list[tuple[int, NodeId]] = []
    at_once: int = 1
    waited_s: float = 0.0
    wait_s: float = msgspec.field(default=0.0, name="patience_s")


class ReadsScheduled(Message, frozen=True):
    """New grants of a reader, as (its number, datanode), and the number of its chunks that still wait."""

    grants: list[tuple[int, NodeId]] = msgspec.field(name="leaves")
    waiting: int = 0
