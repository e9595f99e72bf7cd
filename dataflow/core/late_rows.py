"""Late rows: how many rows operators have left out because rows with later times had arrived before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from .effects import Effect, SendMessage
from .messages import CONTROLLER, RowsLate
from .units.unit import HAUnit


class LateRowReports:
    """The late rows that a node has reported to the controller."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, int], Mapping[str, int]] = {}

    def report(self, units: Iterable[HAUnit]) -> Iterator[Effect]:
        """Report new late rows. Must be called before the output of the same events is sent."""
        for unit in units:
            rows, name = unit.operators.late_rows, (unit.name, unit.incarnation)
            if rows and rows != self._told.get(name):
                self._told[name] = rows
                yield SendMessage(CONTROLLER, RowsLate(unit.name, rows))


class LateRowCounts:
    """Late rows per operator, as reported by units. A restarted unit may count some of them again."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}

    def add(self, message: RowsLate) -> list[str]:
        """Add a report, and return the operators that had no late rows before."""
        first = [operator for operator in message.rows if operator not in self._rows]
        for operator, rows in message.rows.items():
            self._rows[operator] = max(rows, self._rows.get(operator, 0))
        return first

    def by_operator(self) -> dict[str, int]:
        return dict(self._rows)
