"""HA's Tables 6 to 8 and Figures 6 and 7 (section 7): each cell with the paper's number, ours and the closed form.

Times are milliseconds, and overheads percent of the unit's input, as in the paper. For figures, only numbers in
the paper's text or tables are given; the others exist only as pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from peacefs.dataflow.advice import closed_forms
from peacefs.dataflow.advice.closed_forms import UnitLoad
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.passive_standby import PassiveStandby
from peacefs.dataflow.techniques.upstream_backup import UpstreamBackup

from .closed_forms import passive_standby_bandwidth
from .ha_experiment import Setup, measure

#: HA 7: "each point is the average of 25 simulation runs".
RUNS = 25


@dataclass(frozen=True)
class Approach:
    """A technique of the paper, at its guarantee for a convergent-capable unit: rollback or precise recovery."""

    technique: Callable[[float], Technique]
    recovery_s: Callable[[UnitLoad], float]
    bandwidth: Callable[[UnitLoad], float]


def _upstream_backup(interval_s: float, *, precise: bool) -> Technique:
    # As in the paper, a row is dropped once the effects of the row have reached nodes that are alive.
    return UpstreamBackup(interval_s=interval_s, precise=precise, adjacent_failures=False)


#: Add a technique here, with its closed forms. The tables below name the techniques for which they have numbers.
APPROACHES: Mapping[str, Approach] = {
    "upstream backup": Approach(
        partial(_upstream_backup, precise=False),
        closed_forms.upstream_backup_recovery_s,
        closed_forms.upstream_backup_bandwidth,
    ),
    "upstream backup, precise": Approach(
        partial(_upstream_backup, precise=True),
        closed_forms.upstream_backup_recovery_s,
        partial(closed_forms.upstream_backup_bandwidth, precise=True),
    ),
    "active standby": Approach(
        lambda interval_s: ActiveStandby(interval_s=interval_s, precise=False),
        closed_forms.active_standby_recovery_s,
        closed_forms.active_standby_bandwidth,
    ),
    "active standby, precise": Approach(
        lambda interval_s: ActiveStandby(interval_s=interval_s),
        partial(closed_forms.active_standby_recovery_s, precise=True),
        closed_forms.active_standby_bandwidth,
    ),
    "passive standby": Approach(
        lambda interval_s: PassiveStandby(interval_s=interval_s, precise=False),
        closed_forms.passive_standby_recovery_s,
        passive_standby_bandwidth,
    ),
}


@dataclass(frozen=True)
class TableCell:
    #: The row of a table, or the position on a line of a figure.
    case: str
    approach: str
    setup: Setup
    #: None if the paper gives no number.
    paper_recovery_ms: float | None = None
    paper_bandwidth: float | None = None


@dataclass(frozen=True)
class TableRow:
    """A cell that was run. Overheads are percent of the unit's input bytes."""

    case: str
    approach: str
    paper_recovery_ms: float | None
    recovery_ms: float
    recovery_deviation_ms: float
    closed_recovery_ms: float
    paper_bandwidth: float | None
    bandwidth: float
    #: With whole pages for copies of state, instead of only the new rows in them.
    bandwidth_of_pages: float
    closed_bandwidth: float
    runs: int


def run_result(name: str, runs: int = RUNS) -> list[TableRow]:
    """Run the cells of a table or figure."""
    return [_run(cell, runs) for cell in cells(name)]


def cells(name: str) -> list[TableCell]:
    """Return the cells of a table or figure whose technique exists here."""
    return [cell for cell in RESULTS[name]() if cell.approach in APPROACHES]


def _run(cell: TableCell, runs: int) -> TableRow:
    approach = APPROACHES[cell.approach]
    found = measure(cell.setup, approach.technique, runs)
    print(f"  {cell.case}, {cell.approach}: recovered in {1000 * found.recovery_s:.2f} ms", flush=True)
    return TableRow(
        cell.case,
        cell.approach,
        cell.paper_recovery_ms,
        1000 * found.recovery_s,
        1000 * found.recovery_deviation_s,
        1000 * approach.recovery_s(cell.setup.load),
        cell.paper_bandwidth,
        100 * found.bandwidth,
        100 * found.bandwidth_of_pages,
        100 * approach.bandwidth(cell.setup.load),
        found.runs,
    )


# -- the paper's tables -----------------------------------------------------------------------------------------

_UPSTREAM, _ACTIVE, _PASSIVE = "upstream backup", "active standby", "passive standby"

#: (recovery ms, bandwidth %) of upstream backup, active standby and passive standby.
_TABLE_6 = {
    "filter": (Setup("filter"), (47.62, 0.64), (1.80, 100.96), (45.88, 101.27)),
    "aggregate": (Setup("aggregate"), (69.86, 0.64), (0.07, 100.96), (48.88, 111.55)),
    "union": (Setup("union"), (50.92, 1.28), (1.82, 101.91), (47.24, 101.90)),
}
#: Window: passive standby's overhead and recovery, upstream backup's recovery.
_TABLE_7 = {
    100: (111.55, 48.9, 69.9),
    200: (111.55, 51.7, 98.9),
    300: (111.54, 54.6, 138.7),
    400: (111.54, 60.0, 188.5),
    500: (111.54, 63.9, 248.3),
}
#: By advance, the same values.
_TABLE_8 = {
    100: (102.6, 47.5, 62.6),
    50: (103.6, 47.5, 61.4),
    25: (105.6, 47.6, 61.3),
    10: (111.6, 48.8, 69.9),
    5: (121.5, 51.6, 83.8),
}
_FIGURE_6_INTERVALS_MS = (25, 50, 100, 150, 200)
_FIGURE_7_OPERATORS = (1, 2, 3, 4, 5)
#: HA 7.4: "It reaches 170 ms for 5 operators".
_FIGURE_7_UPSTREAM_MS = {1: 69.86, 5: 170.0}
#: HA 7.2: precise recovery costs upstream backup "a little over 16 %", and active standby r in time.
_PRECISE = ", precise"


def _table_6() -> Iterator[TableCell]:
    for case, (setup, *papers) in _TABLE_6.items():
        for approach, (recovery_ms, bandwidth) in zip((_UPSTREAM, _ACTIVE, _PASSIVE), papers, strict=True):
            yield TableCell(case, approach, setup, recovery_ms, bandwidth)


def _windows(
    what: str, table: Mapping[int, tuple[float, float, float]], setup: Callable[[int], Setup]
) -> Iterator[TableCell]:
    for rows, (passive_bandwidth, passive_ms, upstream_ms) in table.items():
        yield TableCell(f"{what} {rows}", _PASSIVE, setup(rows), passive_ms, passive_bandwidth)
        yield TableCell(f"{what} {rows}", _UPSTREAM, setup(rows), upstream_ms)


def _figure_6() -> Iterator[TableCell]:
    for approach, paper in _aggregate_of_table_6().items():
        for interval_ms in _FIGURE_6_INTERVALS_MS:
            known = paper if interval_ms == 50 else (None, None)
            yield TableCell(f"{interval_ms} ms", approach, Setup(interval_s=interval_ms / 1000), *known)


def _figure_7() -> Iterator[TableCell]:
    for approach, paper in _aggregate_of_table_6().items():
        for operators in _FIGURE_7_OPERATORS:
            known = paper if operators == 1 else (None, None)
            if approach == _UPSTREAM:
                known = _FIGURE_7_UPSTREAM_MS.get(operators), known[1]
            yield TableCell(f"{operators} operators", approach, Setup(operators=operators), *known)


def _aggregate_of_table_6() -> dict[str, tuple[float | None, float | None]]:
    _, upstream, active, passive = _TABLE_6["aggregate"]
    return {
        _UPSTREAM: upstream,
        _UPSTREAM + _PRECISE: (upstream[0], upstream[1] + 16),
        _ACTIVE: active,
        _ACTIVE + _PRECISE: (active[0] + 40, active[1]),
        _PASSIVE: passive,
    }


RESULTS: Mapping[str, Callable[[], Iterable[TableCell]]] = {
    "ha_table6": _table_6,
    "ha_table7": partial(_windows, "window", _TABLE_7, lambda rows: Setup(window=rows)),
    "ha_table8": partial(_windows, "advance", _TABLE_8, lambda rows: Setup(advance=rows)),
    "ha_figure6": _figure_6,
    "ha_figure7": _figure_7,
}
