"""A running operator, as its unit calls it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, TypeAlias

import pyarrow as pa

from .phases import Phases

Rows: TypeAlias = pa.RecordBatch


class Operator(ABC):
    """A running operator. It is called by one thread at a time."""

    #: True if its output may depend on rows of earlier batches.
    keeps_rows: ClassVar[bool] = True
    #: The stamp of the rows that it receives next. Stamps rise. None unless `oldest` is used.
    stamp: int | None = None
    #: The rows that the last call of `process` left out because of their times.
    left_out: Sequence[Rows] = ()

    @abstractmethod
    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        """Process rows of one input, and return rows of the output."""

    def end(self, port: int) -> Iterable[Rows]:
        """Handle the end of an input, and return the rows that were held back for it."""
        return ()

    @property
    def late_rows(self) -> int:
        """Number of rows that it left out, at least in part, because rows with later times had arrived before."""
        return 0

    def on_time(self, now_us: int) -> Iterable[Rows]:
        """Handle the time. Called only if the operator's specification has `wants_time`."""
        return ()

    def oldest(self, port: int) -> int | None:
        """Return the stamp of the oldest rows of an input that its state depends on; None if there are none.

        If its class is convergent-capable, an operator that begins empty with those rows comes to the same state
        after the same row.
        """
        return None

    def changed_phases(self) -> Phases | None:
        """Return the phases that have changed since the last call, if the specification has `keeps_phases`."""
        return None

    def begin_with(self, phases: Phases) -> None:
        """Set the phases that the operator had at this point. Called before any row."""
        raise AssertionError("it has no phases")
