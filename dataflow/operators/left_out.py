"""A side output: the rows that another operator leaves out because of their times.

It runs a second instance of that operator beside it, on the same rows, and passes on what this one leaves out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from peacefs.dataflow.model.operator import Operator, Rows
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.unit_state.operator_state import OperatorState

from .interface import OperatorSpecification


@dataclass(frozen=True)
class LeftOut(OperatorSpecification):
    kind: ClassVar[str] = "late"
    judges_times: ClassVar[bool] = True
    bounds_causes = False
    inner: OperatorSpecification

    @property
    def operator_class(self) -> OperatorClass:
        return max(self.inner.operator_class, OperatorClass.DETERMINISTIC)

    @property
    def wants_time(self) -> bool:
        return self.inner.wants_time

    @property
    def unrecorded(self) -> str | None:
        return self.inner.unrecorded

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        self.inner.output_type(inputs)
        return inputs[0]

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _LeftOut(self.inner.start(inputs, state))


class _LeftOut(Operator):
    def __init__(self, inner: Operator) -> None:
        self._inner = inner

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        for _ in self._inner.process(port, rows):
            pass
        return [each for each in self._inner.left_out if each.num_rows]

    def on_time(self, now_us: int) -> Iterable[Rows]:
        for _ in self._inner.on_time(now_us):
            pass
        return ()
