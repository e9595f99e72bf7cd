"""A point at which a unit can begin empty: where to read from, and from where its output is right again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from peacefs.dataflow.model.batches import Position


class InputPoint(NamedTuple):
    #: The state that the unit had depends on rows after this one alone: its low watermark.
    begin: Position
    #: The position of the unit then: the high watermark of its last output row.
    upto: Position
    #: True if it had been told that the input has ended.
    ended: bool
    #: True if it had been told so before the rows after `begin` came.
    began_ended: bool = False


@dataclass(frozen=True, slots=True)
class RestartPoint:
    """A unit that begins empty after `begin` and has read up to `upto` has the state that it had then.

    Rows that it makes on the way are those that consumers have, or wrong ones; the next after them has the number
    after that in `outputs`.
    """

    inputs: Mapping[str, InputPoint]
    outputs: Mapping[str, int]
    #: The last event before `begin`, and the last of which rows up to `outputs` came, where events are recorded.
    begin_event: int = 0
    event: int = 0

    @property
    def begins(self) -> dict[str, Position]:
        return {stream: point.begin for stream, point in self.inputs.items()}
