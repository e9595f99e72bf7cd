"""HA's tables and figures as pictures: our results, the closed form, and the paper's numbers where it gives them.

matplotlib is optional and imported only here, when needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from benchmarks.papers.ha_results import TableRow


def drawn(rows: Sequence[TableRow], name: str) -> Figure:
    """Draw a figure as in the paper, recovery time against overhead; draw a table as one panel per technique."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.0), layout="constrained")
    figure.suptitle(f"{name}: solid ours, dashed the closed form, crosses HA's numbers")
    if "figure" in name:
        _trade_off(figure.subplots(), rows)
    else:
        recovery, bandwidth = figure.subplots(1, 2)
        _against_cases(
            recovery, rows, lambda row: (row.recovery_ms, row.closed_recovery_ms, row.paper_recovery_ms)
        )
        recovery.set_ylabel("recovery time, ms")
        _against_cases(bandwidth, rows, lambda row: (row.bandwidth, row.closed_bandwidth, row.paper_bandwidth))
        bandwidth.set_ylabel("bandwidth overhead, %")
    return figure


def _trade_off(axis: Axes, rows: Sequence[TableRow]) -> None:
    for at, approach in enumerate(dict.fromkeys(row.approach for row in rows)):
        line = [row for row in rows if row.approach == approach]
        color = f"C{at}"
        axis.plot(
            [row.bandwidth for row in line],
            [row.recovery_ms for row in line],
            marker="o",
            color=color,
            label=f"{approach}, {line[0].case} to {line[-1].case}",
        )
        axis.plot(
            [row.closed_bandwidth for row in line],
            [row.closed_recovery_ms for row in line],
            linestyle="--",
            color=color,
        )
        known = [
            (row.paper_bandwidth, row.paper_recovery_ms)
            for row in line
            if row.paper_bandwidth is not None and row.paper_recovery_ms is not None
        ]
        if known:
            axis.scatter(*zip(*known, strict=True), marker="x", color=color)
    axis.set_xlabel("bandwidth overhead, %")
    axis.set_ylabel("recovery time, ms")
    axis.set_xlim(left=-5)
    axis.set_ylim(bottom=0)
    axis.legend(fontsize="small")


def _against_cases(
    axis: Axes, rows: Sequence[TableRow], numbers: Callable[[TableRow], tuple[float, float, float | None]]
) -> None:
    cases = list(dict.fromkeys(row.case for row in rows))
    for at, approach in enumerate(dict.fromkeys(row.approach for row in rows)):
        line = [row for row in rows if row.approach == approach]
        places = [cases.index(row.case) for row in line]
        color = f"C{at}"
        axis.plot(places, [numbers(row)[0] for row in line], marker="o", color=color, label=approach)
        axis.plot(places, [numbers(row)[1] for row in line], linestyle="--", color=color)
        known = [(cases.index(row.case), paper) for row in line if (paper := numbers(row)[2]) is not None]
        if known:
            axis.scatter(*zip(*known, strict=True), marker="x", color=color)
    axis.set_xticks(range(len(cases)), cases)
    axis.set_ylim(bottom=0)
    axis.legend(fontsize="small")
