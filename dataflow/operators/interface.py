"""Operators: what a query says of them, and what runs.

A *specification* is a value: it is compared when a query is restarted and is sent to nodes. `start` makes an
operator that runs, which finds its state as it left it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from peacefs.dataflow.model.operator import Operator
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.unit_state.operator_state import OperatorState


class OperatorSpecification(ABC):
    #: The operator's name in messages and in names made for it.
    kind: ClassVar[str]
    #: True if a row counts less when rows with later times came before it.
    judges_times: ClassVar[bool] = False

    @property
    @abstractmethod
    def operator_class(self) -> OperatorClass: ...

    @property
    def wants_time(self) -> bool:
        return False

    @property
    def wants_chance(self) -> bool:
        """True if it draws numbers from `OperatorState.chance`, which is seeded for each event of its unit."""
        return False

    @property
    def keeps_phases(self) -> bool:
        """True if it comes to the state that it had only when it begins with the phases that it had."""
        return False

    @property
    def unrecorded(self) -> str | None:
        """Return why a replay of the same events may give other rows; None if it gives the same."""
        return None

    @property
    def bounds_causes(self) -> bool:
        """Return whether it is known which rows its state depends on, so that `oldest` can say so."""
        return True

    @property
    def unique(self) -> tuple[str, ...]:
        """Name the columns that tell its rows apart, if from the same rows it makes the same in any order."""
        return ()

    @abstractmethod
    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        """Return the type of the output. Raises InvalidQuery if the inputs do not fit."""

    @abstractmethod
    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator: ...
