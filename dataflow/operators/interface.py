"""Operators: their specification in a query, and what runs.

A *specification* is a value: it is compared when a query is restarted, and it is sent to nodes. `start` creates
the running operator, which finds its state as it left it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from peacefs.dataflow.model.operator import Operator
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.model.timing import Timing, together
from peacefs.dataflow.unit_state.operator_state import OperatorState


class OperatorSpecification(ABC):
    #: The operator's name in messages and in generated names.
    kind: ClassVar[str]
    #: True if a row can be treated as late because rows with later times came before it.
    judges_times: ClassVar[bool] = False

    @property
    @abstractmethod
    def operator_class(self) -> OperatorClass: ...

    @property
    def wants_time(self) -> bool:
        return False

    @property
    def wants_chance(self) -> bool:
        """True if it draws from `OperatorState.chance`, which is seeded for each event of its unit."""
        return False

    @property
    def keeps_phases(self) -> bool:
        """True if it needs its earlier phases to restore its state."""
        return False

    @property
    def unrecorded(self) -> str | None:
        """The reason why a replay of the same events may give other rows; None if it gives the same rows."""
        return None

    @property
    def bounds_causes(self) -> bool:
        """True if it is known which rows its state depends on, so that `oldest` can return them."""
        return True

    @property
    def unique(self) -> tuple[str, ...]:
        """The columns that identify its rows, if it makes the same rows from the same input but in any order."""
        return ()

    @abstractmethod
    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        """Return the type of the output. Raises InvalidQuery if the inputs do not fit."""

    def output_timing(self, inputs: Sequence[Timing]) -> Timing:
        """Return how late rows of the output may be, given that of the inputs."""
        return together(inputs)

    def late_only(self) -> OperatorSpecification | None:
        """Return the cheapest operator that leaves out the same rows; None if it leaves out none."""
        return None

    @abstractmethod
    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator: ...
