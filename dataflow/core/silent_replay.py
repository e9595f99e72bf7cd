"""What a unit processes again in silence: an earlier start of it has sent what comes of that."""

from __future__ import annotations

from collections.abc import Mapping

from .ha_input import HAInput
from .restart_point import InputPoint, RestartPoint


class SilentReplay:
    """Input up to a restart point: by positions, or, where events are recorded, up to an event.

    Positions do not say where a unit is if the time matters to it.
    """

    def __init__(self, restart: RestartPoint | None, *, by_events: bool) -> None:
        self._inputs: dict[str, InputPoint] = {}
        self._until_event = 0
        if restart is not None and by_events:
            self._until_event = restart.event
        elif restart is not None:
            self._inputs = dict(restart.inputs)

    def goes_on(self, event: int) -> bool:
        """Return whether a unit that is at an event is still silent."""
        return bool(self._inputs) or event < self._until_event

    def upto(self, stream: str) -> int | None:
        """Return the number of the last row of an input that is processed in silence; None if any may come."""
        point = self._inputs.get(stream)
        return None if point is None else point.upto.number

    def lets_end(self, stream: str) -> bool:
        """Return whether a unit may be told of the end of an input."""
        point = self._inputs.get(stream)
        return point is None or point.ended

    def look(self, inputs: Mapping[str, HAInput]) -> None:
        """End it once everything was processed that an earlier start had processed."""
        if all(
            inputs[stream].processed >= point.upto and inputs[stream].ended >= point.ended
            for stream, point in self._inputs.items()
        ):
            self._inputs = {}
