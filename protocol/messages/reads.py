"""Reading checkpoints: readers name the chunks that they want, the coordinator grants few reads at a datanode.

See decision 14.
"""

from __future__ import annotations

import msgspec

from peacefs.protocol.ids import NodeId

from .base import Message, TracedMessage


class StateReads(TracedMessage, frozen=True):
    """The chunks that the reader of `token`, a checkpoint's, wants to read next, by (its own number, the datanodes
    that have it, nearest first), `at_once` of them together. Answered at once by ReadsScheduled, or, with
    `wait_s`, as soon as one is granted within that time.

    Said again when a chunk is done, and now and then while it reads or waits, with what it is `holding`: grants by
    (its number, where). What it neither holds nor wants is given back. `reader` is its name, never used for
    another; `waited_s` how long it has waited.
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
    """The grants that a reader has beyond those that it holds: by (its number, where); and how many of the chunks
    that it named wait."""

    grants: list[tuple[int, NodeId]] = msgspec.field(name="leaves")
    waiting: int = 0
