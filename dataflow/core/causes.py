"""The causes of a unit's output: for each output row the oldest input row that contributed to it (HA, 5.2.2).

Input-tuple indicators travel with batches as *stamps*. A stamp stands for the rows that came between two points in
time, and rises. An operator stamps what it makes with the oldest stamp that its state depends on, and a stamp is
mapped to a position of every input from which the operator is reached. So it costs a comparison a batch, and the
position is that of the point before the row: too old by a trimming interval at most.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import TypeVar

from peacefs.dataflow.model.batches import Position
from peacefs.dataflow.operators.interface import Operator
from peacefs.dataflow.query.network import UnitPlan
from peacefs.protocol.limits import dataflow_causes_max

from .ha_input import HAInput
from .ha_output import HAOutput
from .output_buffer import Level
from .restart_point import InputPoint, RestartPoint

_Point = TypeVar("_Point")


class UnitCauses:
    def __init__(self, plan: UnitPlan, operators: Mapping[str, Operator], inputs: Mapping[str, HAInput]) -> None:
        self._operators = operators
        #: The stamp of rows that come in now.
        self.stamp = 1
        # Positions of the inputs when each stamp began.
        self._stamps = [1]
        self._began: list[dict[str, Position]] = [_positions(inputs)]
        # The oldest stamp that the next row of an operator may depend on.
        self._oldest: dict[str, int] = {}
        self._points: list[RestartPoint] = []
        self._given: RestartPoint | None = None
        # Inputs of the unit from which each port of an operator is reached.
        self._sources: dict[str, list[frozenset[str]]] = {}
        for node in plan.operators:
            ports = [
                frozenset[str]().union(*self._sources[name]) if name in self._sources else frozenset({name})
                for name in node.inputs
            ]
            self._sources[node.name] = ports

    def enter(self, operator: str, stamp: int) -> int:
        """Note that an operator is given rows with a stamp, and return the stamp of those it makes of them."""
        running = self._operators[operator]
        running.stamp = stamp
        if not running.keeps_rows:
            return stamp
        self._oldest[operator] = min(self._oldest.get(operator, stamp), stamp)
        return self._oldest[operator]

    def of(self, operator: str) -> int:
        """Return the stamp of rows that an operator makes without being given any."""
        return self._oldest.get(operator, self.stamp)

    def note(self, inputs: Mapping[str, HAInput], outputs: Mapping[str, HAOutput]) -> None:
        """Remember a point at which the unit could begin, unless it is where it was."""
        now = _positions(inputs)
        begins = dict(now)
        needed = self.stamp + 1
        for name, operator in self._operators.items():
            if not operator.keeps_rows:
                continue
            self._oldest.pop(name, None)
            for port, reached in enumerate(self._sources[name]):
                stamp = operator.oldest(port)
                if stamp is None:
                    continue
                needed = min(needed, stamp)
                self._oldest[name] = min(self._oldest.get(name, stamp), stamp)
                began = self._began[bisect_right(self._stamps, stamp) - 1]
                for stream in reached:
                    begins[stream] = min(begins[stream], began[stream])
        point = RestartPoint(
            {stream: InputPoint(begins[stream], now[stream], inputs[stream].ended) for stream in inputs},
            {stream: output.buffer.produced for stream, output in outputs.items()},
        )
        if self._points and point == self._points[-1]:
            return
        self._points = _thinned([*self._points, point])
        if now != self._began[-1]:
            keep = bisect_right(self._stamps, needed) - 1
            self.stamp += 1
            self._stamps = _thinned([*self._stamps[keep:], self.stamp])
            self._began = _thinned([*self._began[keep:], now])

    def reached(self, outputs: Mapping[str, HAOutput], level: Level) -> RestartPoint | None:
        """Return the latest point whose output all consumers have at `level`, if it is another than before."""
        have = {stream: output.reached(level) for stream, output in outputs.items()}
        at = len(self._points)
        while at and any(self._points[at - 1].outputs[stream] > have[stream] for stream in outputs):
            at -= 1
        if not at:
            return None
        # It stays, as that which the next one is compared with.
        self._points = self._points[at - 1 :]
        if self._points[0] == self._given:
            return None
        self._given = self._points[0]
        return self._given


def _positions(inputs: Mapping[str, HAInput]) -> dict[str, Position]:
    return {stream: source.processed for stream, source in inputs.items()}


def _thinned(points: list[_Point]) -> list[_Point]:
    """Leave every second one out when there are too many, but neither the first nor the last."""
    if len(points) <= dataflow_causes_max:
        return points
    return [*points[:-1:2], points[-1]]
