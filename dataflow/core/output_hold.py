"""A hold on the output of a unit: rows leave once the events that they depend on are kept elsewhere as well."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from .ha_output import HAOutput


class OutputHold:
    def __init__(self, outputs: Mapping[str, HAOutput]) -> None:
        self._outputs = outputs
        self._holds = False
        # The outputs as they were at each event that gave output which is held back.
        self._held: deque[tuple[int, dict[str, tuple[int, bool]]]] = deque()

    def begin(self) -> None:
        self._holds = True
        for output in self._outputs.values():
            output.hold()

    def note(self, event: int) -> None:
        """Note what the outputs have after an event."""
        if self._holds:
            outputs = {name: (output.buffer.produced, output.ended) for name, output in self._outputs.items()}
            self._held.append((event, outputs))

    def release(self, event: int) -> None:
        """Let the output of events up to this one leave."""
        while self._held and self._held[0][0] <= event:
            _, outputs = self._held.popleft()
            for stream, (number, ended) in outputs.items():
                self._outputs[stream].release(number, ended)

    def end(self) -> None:
        """Let everything leave, now and later."""
        self._holds = False
        self._held.clear()
        for output in self._outputs.values():
            output.release_all()
