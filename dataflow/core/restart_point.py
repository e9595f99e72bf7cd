"""A point at which a unit can begin empty: where it reads from, and from where its output is correct."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from peacefs.dataflow.model.batches import Position


class InputPoint(NamedTuple):
    #: The low watermark: the state of the unit depends only on rows after this one.
    begin: Position
    #: The position of the unit at the point: the high watermark of its last output row.
    upto: Position
    #: True if the unit knew at the point that the input had ended.
    ended: bool
    #: True if the unit knew of the end before the rows after `begin` arrived.
    began_ended: bool = False


@dataclass(frozen=True, slots=True)
class RestartPoint:
    """A unit that begins empty after `begin` and reads up to `upto` has the state that it had at this point.

    Rows that it makes on the way are duplicates or wrong, and are dropped. The first row after them has the number
    after the one in `outputs`.
    """

    inputs: Mapping[str, InputPoint]
    outputs: Mapping[str, int]
    #: If events are recorded: the last event before `begin`, and the last event that made rows up to `outputs`.
    begin_event: int = 0
    event: int = 0

    @property
    def begins(self) -> dict[str, Position]:
        return {stream: point.begin for stream, point in self.inputs.items()}
