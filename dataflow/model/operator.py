"""A running operator, as its unit calls it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, TypeAlias

import pyarrow as pa

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
