"""Late rows: how many the operators of units have left out, since rows with later times had come before them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from .effects import Effect, SendMessage
from .messages import CONTROLLER, RowsLate
from .unit import HAUnit


class LateRowReports:
    """What a node has told the controller of late rows."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, int], Mapping[str, int]] = {}

    def report(self, units: Iterable[HAUnit]) -> Iterator[Effect]:
        """Tell of those that have come since. Call it before the rows leave that were made meanwhile."""
        for unit in units:
            rows, name = unit.operators.late_rows, (unit.name, unit.incarnation)
            if rows and rows != self._told.get(name):
                self._told[name] = rows
                yield SendMessage(CONTROLLER, RowsLate(unit.name, rows))


class LateRowCounts:
    """Late rows by operator, as units have told of them. One that begins again may count some of them again."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}

    def add(self, message: RowsLate) -> list[str]:
        """Learn of late rows. Return the operators that had none before."""
        first = [operator for operator in message.rows if operator not in self._rows]
        for operator, rows in message.rows.items():
            self._rows[operator] = max(rows, self._rows.get(operator, 0))
        return first

    def by_operator(self) -> dict[str, int]:
        return dict(self._rows)
