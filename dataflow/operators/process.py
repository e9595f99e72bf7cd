"""The user's own function with state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.protocol.errors import InvalidQuery

from .interface import Operator, OperatorSpecification, Rows
from .row_operators import checked

#: Takes rows and a map that is kept over failures; returns rows.
StatefulFunction = Callable[[Rows, MutableMapping[Any, Any]], Rows]


@dataclass(frozen=True)
class Process(OperatorSpecification):
    kind: ClassVar[str] = "process"
    function: StatefulFunction
    schema: pa.Schema
    time: str
    deterministic: bool

    @property
    def operator_class(self) -> OperatorClass:
        return OperatorClass.DETERMINISTIC if self.deterministic else OperatorClass.ARBITRARY

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        if not callable(self.function):
            raise InvalidQuery(f"process needs a function of (rows, state), not {self.function!r}")
        return StreamType(self.schema, self.time)

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _Process(self, state)


class _Process(Operator):
    def __init__(self, of: Process, state: OperatorState) -> None:
        self._of = of
        self._state = state.mapping("state")

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        made = checked(self._of.function(rows, self._state), self._of.schema, self._of.function)
        return (made,) if made.num_rows else ()
