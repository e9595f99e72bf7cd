"""High watermarks: up to which input rows an output row was made (HA 5.3).

Two replicas of a unit that is not deterministic number their rows differently. A row of the secondary is a
duplicate if it was made from no later input than the rows that consumers have from the primary. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from peacefs.dataflow.core.ha_output import HAOutput
from peacefs.dataflow.model.batches import Position

Positions = Mapping[str, Position]


class Watermarks:
    """For one output: pairs of a row number and the positions of the unit's inputs. Both only rise."""

    def __init__(self) -> None:
        self._marks: deque[tuple[int, Positions]] = deque()

    def note(self, number: int, positions: Positions) -> None:
        """Record that rows up to `number` were made from inputs up to `positions`."""
        if not self._marks or number > self._marks[-1][0]:
            self._marks.append((number, positions))

    def at(self, number: int) -> Positions | None:
        """Return the positions for the rows up to `number`, for complete events. None if there are none yet."""
        found = None
        for upto, positions in self._marks:
            if upto > number:
                break
            found = positions
        return found

    def made_from(self, positions: Positions) -> int:
        """Return the highest number up to which all rows were made from inputs up to `positions`."""
        highest = 0
        for number, made in self._marks:
            if any(each > positions.get(stream, each) for stream, each in made.items()):
                break
            highest = number
        return highest

    def drop(self, number: int) -> None:
        """Drop the marks of rows below `number`, except the last one."""
        while len(self._marks) > 1 and self._marks[1][0] <= number:
            self._marks.popleft()


class TrimmedOutputs:
    """The outputs of a unit that has a replica: drops rows that consumers have received from the replica.

    If both replicas give rows the same numbers, the numbers identify these rows; otherwise watermarks do.
    """

    def __init__(self, outputs: Mapping[str, HAOutput], *, numbered_differently: bool) -> None:
        self._outputs = outputs
        self._watermarks = {stream: Watermarks() for stream in outputs} if numbered_differently else None

    def note(self, positions: Positions) -> None:
        """Record up to which inputs the rows of the outputs were made."""
        if self._watermarks is not None:
            for stream, output in self._outputs.items():
                self._watermarks[stream].note(output.buffer.produced, positions)

    def made_from(self, stream: str, upto: int) -> Positions | None:
        """Return up to which inputs the rows up to `upto` were made. None if numbers are enough."""
        if self._watermarks is None:
            return None
        found = self._watermarks[stream].at(upto)
        self._watermarks[stream].drop(upto)
        return dict(found or {})

    def trim(self, stream: str, upto: int, positions: Positions | None) -> None:
        """Drop rows that consumers have from the other replica, by number or by watermark."""
        if self._watermarks is not None:
            upto = self._watermarks[stream].made_from(positions) if positions else 0
            self._watermarks[stream].drop(upto)
        self._outputs[stream].trim(upto)
