"""A silent replay: a unit processes input again without output, since an earlier start has sent that output."""

from __future__ import annotations

from collections.abc import Mapping

from peacefs.dataflow.core.ha_input import HAInput
from peacefs.dataflow.core.restart_point import InputPoint, RestartPoint


class SilentReplay:
    """The input up to a restart point, given by positions, or by an event if events are recorded.

    Positions are not enough if the unit's output depends on the time.
    """

    def __init__(self, restart: RestartPoint | None, *, by_events: bool) -> None:
        self._inputs: dict[str, InputPoint] = {}
        self._until_event = 0
        if restart is not None and by_events:
            self._until_event = restart.event
        elif restart is not None:
            self._inputs = dict(restart.inputs)

    def goes_on(self, event: int) -> bool:
        """Return True if a unit that has come to `event` is still silent."""
        return bool(self._inputs) or event < self._until_event

    def upto(self, stream: str) -> int | None:
        """Return the number of the last row of an input to process in silence; None if there is no limit."""
        point = self._inputs.get(stream)
        return None if point is None else point.upto.number

    def lets_end(self, stream: str) -> bool:
        """Return True if the unit may be told that an input has ended."""
        point = self._inputs.get(stream)
        return point is None or point.ended

    def look(self, inputs: Mapping[str, HAInput]) -> None:
        """End the replay once everything that the earlier start processed has been processed."""
        if all(
            inputs[stream].processed >= point.upto and inputs[stream].ended >= point.ended
            for stream, point in self._inputs.items()
        ):
            self._inputs = {}
