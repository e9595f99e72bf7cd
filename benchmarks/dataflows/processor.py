"""The processor of a node in virtual time: one event at a time, for a time that depends on the rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from peacefs.dataflow.core.effects import Effect
from peacefs.dataflow.core.node import NodeCore


class Processor:
    def __init__(
        self,
        core: NodeCore,
        processing_s: Mapping[str, float],
        later: Callable[[float, Callable[[], None]], None],
        perform: Callable[[list[Effect]], None],
    ) -> None:
        """Take `processing_s` seconds per row, by operator. `later` calls a function after a delay."""
        self._core = core
        self._processing_s = processing_s
        self._later = later
        self._perform = perform
        self._waiting: deque[Callable[[], list[Effect]]] = deque()
        # The number of rows that each operator has received so far.
        self._rows: Mapping[tuple[str, int, str], int] = {}
        #: True while an event is being processed, before its effects are performed.
        self.busy = False
        self._stopped = False

    def do(self, event: Callable[[], list[Effect]]) -> None:
        """Handle an event after those before it. Perform its effects when its processing time has passed."""
        self._waiting.append(event)
        self._work()

    def stop(self) -> None:
        """Stop, because the node is dead."""
        self._stopped = True

    def _work(self) -> None:
        while self._waiting and not self.busy and not self._stopped:
            effects = self._waiting.popleft()()
            spent_s = self._spent_s()
            if spent_s:
                self.busy = True
                self._later(spent_s, lambda made=effects: self._done(made))  # type: ignore[misc]
            else:
                self._perform(effects)

    def _done(self, effects: list[Effect]) -> None:
        self.busy = False
        if not self._stopped:
            self._perform(effects)
            self._work()

    def _spent_s(self) -> float:
        before, self._rows = self._rows, self._core.operator_rows
        return sum(
            (rows - before.get(key, 0)) * self._processing_s.get(key[2], 0.0) for key, rows in self._rows.items()
        )
