"""Operators: what a query says of them, and what runs.

A *specification* is a value: it is compared when a query is restarted and is sent to nodes. `start` makes an
operator that runs, which finds its state as it left it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, TypeAlias

import pyarrow as pa

from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.unit_state.operator_state import OperatorState

from .phases import Phases

Rows: TypeAlias = pa.RecordBatch


class Operator(ABC):
    """An operator that runs. It is called by one thread and does one thing at a time."""

    #: True if what it makes may depend on rows of earlier batches.
    keeps_rows: ClassVar[bool] = True
    #: Stands for the rows that it is given next, and rises; None unless somebody asks for `oldest`.
    stamp: int | None = None

    @abstractmethod
    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        """Take rows of one input, and return rows of the output."""

    def end(self, port: int) -> Iterable[Rows]:
        """Learn that an input has ended, and return what was held back for it."""
        return ()

    @property
    def late_rows(self) -> int:
        """Return how many rows it left out, or in part, since rows with later times had come before them."""
        return 0

    def on_time(self, now_us: int) -> Iterable[Rows]:
        """Learn the time. Only operators whose specification has `wants_time` do."""
        return ()

    def oldest(self, port: int) -> int | None:
        """Return the stamp of the oldest rows of an input that its state depends on; None if there are none.

        An operator that begins empty with those rows has the same state after the same row, if its class is
        convergent-capable.
        """
        return None

    def changed_phases(self) -> Phases | None:
        """Return the phases that have changed since the last call, if its specification has `keeps_phases`."""
        return None

    def begin_with(self, phases: Phases) -> None:
        """Learn, before any row, the phases that it had here when it did not begin empty."""
        raise AssertionError("it has no phases")


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
