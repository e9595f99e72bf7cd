"""The user's own function with state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType, names_of
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.dataflow.unit_state.paged_groups import keeps
from peacefs.protocol.errors import InvalidQuery
from peacefs.state.structures.unordered_map import UnorderedMap

from .interface import Operator, OperatorSpecification, Rows
from .row_operators import checked

#: Takes rows and a map that is kept over failures; returns rows.
StatefulFunction = Callable[[Rows, MutableMapping[Any, Any]], Rows]
#: The same with a map of records of declared columns, which is changed a batch at a time.
TableFunction = Callable[[Rows, UnorderedMap], Rows]


@dataclass(frozen=True)
class Process(OperatorSpecification):
    kind: ClassVar[str] = "process"
    function: StatefulFunction | TableFunction
    schema: pa.Schema
    time: str
    deterministic: bool
    #: The columns of the state and those of its key; without them it is a map of Python values.
    state: pa.Schema | None = None
    state_key: tuple[str, ...] = ()

    @property
    def operator_class(self) -> OperatorClass:
        return OperatorClass.DETERMINISTIC if self.deterministic else OperatorClass.ARBITRARY

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        if not callable(self.function):
            raise InvalidQuery(f"process needs a function of (rows, state), not {self.function!r}")
        if self.state is not None:
            missing = [key for key in self.state_key if key not in self.state.names]
            if missing or not self.state_key:
                raise InvalidQuery(
                    f"process needs the key of its state, one of {names_of(self.state.names)}: key=..."
                )
            for field in self.state:
                if not keeps(field.type):
                    raise InvalidQuery(f"process cannot keep {field.name!r} of type {field.type} in its state")
        return StreamType(self.schema, self.time)

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _Process(self, state)


class _Process(Operator):
    def __init__(self, of: Process, state: OperatorState) -> None:
        self._of = of
        self._state: Any = (
            state.mapping("state") if of.state is None else state.table("state", of.state, of.state_key)
        )

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        made = checked(self._of.function(rows, self._state), self._of.schema, self._of.function)
        return (made,) if made.num_rows else ()
