"""A hold on the output of a unit: rows are sent once the events that they depend on are stored elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from peacefs.dataflow.core.ha_output import HAOutput


class OutputHold:
    def __init__(self, outputs: Mapping[str, HAOutput]) -> None:
        self._outputs = outputs
        self._holds = False
        # For each event whose output is held back: the state of the outputs after it.
        self._held: deque[tuple[int, dict[str, tuple[int, bool]]]] = deque()

    def begin(self) -> None:
        self._holds = True
        for output in self._outputs.values():
            output.hold()

    def note(self, event: int) -> None:
        """Record the state of the outputs after an event."""
        if self._holds:
            outputs = {name: (output.buffer.produced, output.ended) for name, output in self._outputs.items()}
            self._held.append((event, outputs))

    def release(self, event: int) -> None:
        """Release the output of all events up to this one."""
        while self._held and self._held[0][0] <= event:
            _, outputs = self._held.popleft()
            for stream, (number, ended) in outputs.items():
                self._outputs[stream].release(number, ended)

    def end(self) -> None:
        """Release everything, now and in future."""
        self._holds = False
        self._held.clear()
        for output in self._outputs.values():
            output.release_all()
