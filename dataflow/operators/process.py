"""The user's own function with state."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from peacefs.dataflow.model.operator import Operator, Rows
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType, names_of
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.dataflow.unit_state.paged_groups import keeps
from peacefs.protocol.errors import InvalidQuery
from peacefs.state.structures.unordered_map import UnorderedMap

from .interface import OperatorSpecification
from .row_operators import checked, name_of
from .row_times import EARLIEST_US, times_of
from .stamps import TimedStamps

#: Takes rows and a map that survives failures; returns rows.
StatefulFunction = Callable[[Rows, MutableMapping[Any, Any]], Rows]
#: The same, with a map of records with declared columns, which is changed in batches.
TableFunction = Callable[[Rows, UnorderedMap], Rows]
#: Either of them with a third argument, the source of its random numbers.
DrawingFunction = (
    Callable[[Rows, MutableMapping[Any, Any], random.Random], Rows]
    | Callable[[Rows, UnorderedMap, random.Random], Rows]
)


@dataclass(frozen=True)
class Process(OperatorSpecification):
    kind: ClassVar[str] = "process"
    function: StatefulFunction | TableFunction | DrawingFunction
    schema: pa.Schema
    time: str
    deterministic: bool
    #: The columns of the state and of its key. Without them the state is a map of Python values.
    state: pa.Schema | None = None
    state_key: tuple[str, ...] = ()
    #: The state depends only on rows at most this much older than the latest row. None: on all rows.
    remembers_us: int | None = None
    #: The columns that identify its rows, if it makes the same rows from the same input but in any order.
    unique: tuple[str, ...] = ()

    @property
    def operator_class(self) -> OperatorClass:
        if not self.deterministic or self.wants_chance:
            return OperatorClass.ARBITRARY
        return OperatorClass.CONVERGENT_CAPABLE if self.bounds_causes else OperatorClass.DETERMINISTIC

    @property
    def bounds_causes(self) -> bool:
        return self.remembers_us is not None

    @property
    def wants_chance(self) -> bool:
        taken = self._arguments
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        wanted = () if taken is None else taken.parameters.values()
        return sum(each.kind in kinds and each.default is each.empty for each in wanted) > 2

    @property
    def _arguments(self) -> inspect.Signature | None:
        try:
            return inspect.signature(self.function)
        except (TypeError, ValueError):  # a builtin without a signature
            return None

    @property
    def unrecorded(self) -> str | None:
        if self.deterministic or self.wants_chance:
            return None
        return "its function is not deterministic; let it draw from a third argument, a random.Random"

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        if not callable(self.function):
            raise InvalidQuery(f"process needs a function of (rows, state), not {self.function!r}")
        taken = self._arguments
        if taken is not None and not any(_takes(taken, count) for count in (2, 3)):
            raise InvalidQuery(
                f"process calls its function with (rows, state), or (rows, state, chance), and "
                f"{name_of(self.function)}{taken} does not take that"
            )
        if self.state is None and self.state_key:
            raise InvalidQuery(
                f"process has a key, {names_of(self.state_key)}, and no state of columns: declare it with "
                "state={...}"
            )
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
        return _Process(self, inputs[0].time, state)


class _Process(Operator):
    def __init__(self, of: Process, time: str, state: OperatorState) -> None:
        self._of = of
        self._chance = (state.chance,) if of.wants_chance else ()
        self._function: Callable[..., Rows] = of.function
        self._time = time
        self._stamps, self._latest_us = TimedStamps(), EARLIEST_US
        self._state: Any = (
            state.mapping("state") if of.state is None else state.table("state", of.state, of.state_key)
        )

    def oldest(self, port: int) -> int | None:
        return self._stamps.oldest

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        if self.stamp is not None and self._of.remembers_us is not None:
            latest_us = int(times_of(rows, self._time).max())
            self._latest_us = max(self._latest_us, latest_us)
            self._stamps.add(self.stamp, latest_us)
            self._stamps.drop_until(self._latest_us - self._of.remembers_us)
        given = self._function(rows, self._state, *self._chance)
        made = checked(given, self._of.schema, self._of.time, self._of.function)
        return (made,) if made.num_rows else ()


def _takes(signature: inspect.Signature, count: int) -> bool:
    """Return True if a function can be called with `count` arguments."""
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True
