"""CEC's Figures 5 to 9: what opens cost, and what a recovery takes by Q, by U and by the period of checks.

One unit, with its log in a local directory, computes the average price of each item over windows of rows, as in
the paper. Figure 5: two items with windows of 1 and of 1,000 rows, and 100,000 items with windows of 10 rows, most
of which are open; each without CEC, with tuples that are made but not written, and with the log. Throughput is
input rows per second and per processor second, since a thread writes the log. Figures 6 to 9: 100,000 items at a
steady rate with windows of 10 rows, and a crash at the end; then a new unit loads the log and replays.

It also measures loads by extent, with the number of items that gives this extent, and recoveries by the choice of
the windows to check.

The paper's machines are from 2007 and its engine processes tuples one by one: compare shapes, not seconds.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.report import show
from benchmarks.state_pictures import draw
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.cec import CEC
from peacefs.dataflow.window_checkpoints.extent import CostBenefit, OpenOnly, Targets, WindowChoice
from peacefs.state.warm import warm

from .cec_unit import BATCH_ROWS, PAPER_TUPLE_BYTES, DrivenUnit, Totals, endless, prices, sales

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ITEMS = 100_000
_WINDOW = 10
#: Rows per second in experiments with a crash: a rate that two cores sustain besides the log.
_RATE = 250_000
#: The numbers of the paper's text: for Figure 6 by Q / open windows, for Figure 7 by U. Each is (extent in tuples,
#: seconds to load, MB to replay).
_PAPER_Q = {
    1: "120,000; 3.5 s; 25 MB",
    2: "180,000; 5 s; 50 MB",
    4: "14 s or more",
    8: "500,000; 27 s; over 200 MB",
}
_PAPER_U = {125_000: "120,000; 2.5 s; 20 MB", 1_000_000: "230,000; 6.7 s; 90 MB"}
#: Figure 8: seconds from the opening of a window to its closure, by the period of checks in ms.
_PAPER_RESPONSE = {0: 16.5, 250: 16.5, 100: 18.5, 50: 21.5, 25: 32.5}


def main(*, quick: bool = False) -> None:
    warm()
    _figure_5(2.0 if quick else 10.0, 1 if quick else 5)
    seconds = 6.0 if quick else 30.0
    by_q = [
        _crash(f"Q = {q} x open", Targets(extent=float(q), replay_rows=None), seconds, paper=_PAPER_Q.get(q, ""))
        for q in ((1, 2, 8) if quick else (1, 2, 3, 4, 6, 8))
    ]
    show("cec_figure6", f"CEC, Figure 6: Q; {_WORKLOAD}, CI 5 ms in CP 100 ms, crash after {seconds:g} s", by_q)
    by_u = [
        _crash(f"U = {u:,}", Targets(extent=None, replay_rows=u), seconds, paper=_PAPER_U.get(u, ""))
        for u in ((125_000, 1_000_000) if quick else (125_000, 250_000, 500_000, 750_000, 1_000_000))
    ]
    show("cec_figure7", f"CEC, Figure 7: U; {_WORKLOAD}, CI 5 ms in CP 100 ms, crash after {seconds:g} s", by_u)
    _draw_recoveries([*by_q, *by_u])
    _loads_and_choices(seconds / 2, quick=quick)
    _figures_8_and_9(seconds, (0, 25, 250) if quick else (0, 25, 50, 100, 250))


_WORKLOAD = f"{_ITEMS:,} items, windows of {_WINDOW} rows, {_RATE:,} rows/s"


# -- Figure 5 -----------------------------------------------------------------------------------------------


def _figure_5(seconds: float, rounds: int) -> None:
    rows = []
    for title, items, window in (("fast", 2, 1), ("slow", 2, 1000), ("many", _ITEMS, _WINDOW)):
        network, batches = prices(window), sales(items, 1_000_000)
        ways: Mapping[str, tuple[Technique, bool]] = {
            "amnesia": (Amnesia(), True),
            "opens, not written": (CEC(OpenOnly()), False),
            "opens in the log": (CEC(OpenOnly()), True),
        }
        found: dict[str, list[Totals]] = {way: [] for way in ways}
        for _ in range(rounds):
            # Take turns, so that a busy moment of the machine affects all alike.
            for way, (technique, persist) in ways.items():
                found[way].append(_play(network, technique, batches, seconds, persist=persist))
        base = found["amnesia"]
        for way, totals in found.items():
            rate, per_processor = _median(totals, "seconds"), _median(totals, "processor_s")
            last = totals[-1]
            rows.append(
                {
                    "windows": title,
                    "way": way,
                    "rows/s": rate,
                    "of amnesia": rate / _median(base, "seconds"),
                    "rows/processor s": per_processor,
                    "of amnesia, processor": per_processor / _median(base, "processor_s"),
                    "results": last.results,
                    "opens": last.opens,
                    "closes": last.closes,
                    "longest pause ms": max(each.pause_s for each in totals) * 1000,
                    "paper": "1" if way == "amnesia" else "above 0.9",
                }
            )
            print(f"  {title}, {way}: {rate:,.0f} rows/s", flush=True)
    show("cec_figure5", f"CEC, Figure 5: baseline, the median of {rounds} rounds of {seconds:g} s", rows)
    draw("cec_figure5", _bars(rows) if find_spec("matplotlib") else None)


def _play(
    network: Network, technique: Technique, batches: Sequence[Any], seconds: float, *, persist: bool
) -> Totals:
    with tempfile.TemporaryDirectory() as name:
        driven = DrivenUnit(Path(name), network, technique, persist=persist)
        driven.play(endless(list(batches)), seconds)
        driven.finish()
        return driven.totals


def _median(totals: Sequence[Totals], by: str) -> float:
    return float(statistics.median(each.rows / getattr(each, by) for each in totals))


# -- Figures 6 and 7 ------------------------------------------------------------------------------------------


def _crash(
    title: str, choice: WindowChoice, seconds: float, *, items: int = _ITEMS, paper: str = ""
) -> dict[str, Any]:
    """Process rows for a while, drop the unit, and recover it."""
    network, batches = prices(_WINDOW), sales(items, 2_000_000)
    technique = CEC(choice, interval_s=0.005, period_s=0.1)
    with tempfile.TemporaryDirectory() as name:
        driven = DrivenUnit(Path(name), network, technique)
        driven.play(endless(batches), seconds, _RATE)
        driven.finish()
        totals, extent = driven.totals, driven.windowed.extent
        again = DrivenUnit(Path(name), network, technique, incarnation=2)
        read = again.windowed.tuples_read
        begin, end = again.unit.positions["sales"].number, driven.unit.positions["sales"].number
        replay_s = _replay(again, batches, begin, end)
        again.finish()
    print(f"  {title}: extent {read:,}, load {again.load_s:.2f} s", flush=True)
    return {
        "target": title,
        "open windows": extent.open_windows,
        "checks": totals.checks,
        "extent tuples": read,
        "load s": again.load_s,
        "us a tuple": again.load_s / max(read, 1) * 1e6,
        "processor us a tuple": again.load_processor_s / max(read, 1) * 1e6,
        "rows replayed": end - begin,
        "MB of the paper's tuples": (end - begin) * PAPER_TUPLE_BYTES / 1e6,
        "replay s": replay_s,
        "longest pause ms": totals.pause_s * 1000,
        "rows/s": totals.rows / totals.seconds,
        "processor us a row": totals.processor_s / totals.rows * 1e6,
        "paper": paper,
    }


def _replay(driven: DrivenUnit, batches: Sequence[Any], begin: int, end: int) -> float:
    """Offer the same rows again: batches come in the same order, from the first."""
    begun = time.perf_counter()
    for at in range(begin // BATCH_ROWS, -(-end // BATCH_ROWS)):
        driven.offer(at * BATCH_ROWS + 1, batches[at % len(batches)])
    return time.perf_counter() - begun


# -- without a figure in the paper ----------------------------------------------------------------------------


def _loads_and_choices(seconds: float, *, quick: bool) -> None:
    """Measure loads with different numbers of items, and all ways to choose windows."""
    loads = [
        _crash(f"{items:,} items", OpenOnly(), max(seconds, items * _WINDOW / _RATE), items=items)
        for items in ((12_500, 100_000) if quick else (12_500, 25_000, 50_000, 100_000, 200_000, 400_000))
    ]
    taken = ("target", "open windows", "extent tuples", "load s", "us a tuple", "processor us a tuple")
    shown = [{name: row[name] for name in taken} for row in loads]
    show("cec_loads", f"CEC: loads by extent; windows of {_WINDOW} rows, {_RATE:,} rows/s, no checks", shown)
    choices: dict[str, WindowChoice] = {"OpenOnly()": OpenOnly(), "Targets()": Targets()}
    for failures in (1.0, 100.0, 10_000.0):
        choices[f"CostBenefit({failures:,.0f} a day)"] = CostBenefit(failures_per_day=failures)
    found = [_crash(title, choice, seconds) for title, choice in choices.items()]
    for row in found:
        row["recovery s"] = row["load s"] + row["replay s"]
    left_out = ("paper", "MB of the paper's tuples")
    rows = [{name: value for name, value in row.items() if name not in left_out} for row in found]
    show("cec_choices", f"CEC: who chooses windows; {_WORKLOAD}, CI 5 ms in CP 100 ms", rows)


# -- Figures 8 and 9 ----------------------------------------------------------------------------------------


def _figures_8_and_9(seconds: float, periods_ms: Sequence[int]) -> None:
    """Run at full speed, with a target that always triggers checks."""
    network, batches = prices(_WINDOW), sales(_ITEMS, 2_000_000)
    rows: list[dict[str, Any]] = []
    lines: dict[str, Sequence[tuple[float, float]]] = {}
    for period_ms in periods_ms:
        technique: Technique = (
            CEC(Targets(extent=1.0, replay_rows=None), interval_s=0.01, period_s=period_ms / 1000)
            if period_ms
            else Amnesia()
        )
        with tempfile.TemporaryDirectory() as name:
            driven = DrivenUnit(Path(name), network, technique, commit_s=min(period_ms / 1000, 0.05) or 0.05)
            driven.play(endless(batches), seconds)
            driven.finish()
        totals = driven.totals
        later = [response for at, response in totals.responses if at > seconds / 2]
        extents = [extent for at, extent in totals.extents if at > seconds / 2]
        way = f"CP {period_ms} ms" if period_ms else "no CEC"
        lines[way] = totals.responses
        rows.append(
            {
                "period": way,
                "response s": statistics.mean(later) if later else float("nan"),
                "rows/s": totals.rows / totals.seconds,
                "extent tuples": statistics.mean(extents) if extents else 0,
                "checks": totals.checks,
                "longest pause ms": totals.pause_s * 1000,
                "paper's response s": _PAPER_RESPONSE[period_ms],
            }
        )
        print(f"  {way}: response {rows[-1]['response s']:.2f} s", flush=True)
    base = rows[0]["response s"]
    for row in rows:
        row["of no CEC"] = row["response s"] / base
        row["paper's"] = row["paper's response s"] / _PAPER_RESPONSE[0]
    show("cec_figures8_9", "CEC, Figures 8 and 9: from the opening of a window to its closure, and extent", rows)
    draw("cec_figures8_9", _periods(lines, rows) if find_spec("matplotlib") else None)


# -- pictures ---------------------------------------------------------------------------------------------------


def _bars(rows: Sequence[Mapping[str, Any]]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.0), layout="constrained")
    axes = figure.subplots(1, 3)
    for axis, title in zip(axes, dict.fromkeys(row["windows"] for row in rows), strict=True):
        mine = [row for row in rows if row["windows"] == title]
        axis.bar([row["way"].replace(" ", "\n") for row in mine], [row["rows/s"] for row in mine])
        axis.set_title(f"{title} windows")
        axis.tick_params(labelsize="x-small")
    axes[0].set_ylabel("rows a second")
    return figure


def _draw_recoveries(rows: Sequence[Mapping[str, Any]]) -> None:
    draw("cec_figures6_7", _recoveries(rows) if find_spec("matplotlib") else None)


def _recoveries(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw four pictures, with Q on the left and U on the right, as in the paper."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 9.0), layout="constrained")
    axes = figure.subplots(4, 2)
    for side, letter in enumerate("QU"):
        mine = [row for row in rows if row["target"].startswith(letter)]
        ticks = [row["target"].removeprefix(f"{letter} = ").removesuffix(" x open") for row in mine]
        for axis, name in zip(
            axes[:, side], ("checks", "extent tuples", "load s", "MB of the paper's tuples"), strict=True
        ):
            axis.plot(ticks, [row[name] for row in mine], marker="o")
            axis.set_title(f"{name} by {letter}", fontsize="small")
            axis.set_ylim(bottom=0)
    return figure


def _periods(lines: Mapping[str, Sequence[tuple[float, float]]], rows: Sequence[Mapping[str, Any]]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.0), layout="constrained")
    responses, extents = figure.subplots(1, 2)
    for way, line in lines.items():
        responses.plot(*zip(*line, strict=True), label=way, linewidth=0.8)
    responses.set_title("Figure 8: seconds from open to closed")
    responses.set_xlabel("seconds")
    responses.legend(fontsize="small")
    with_checks = rows[1:]
    extents.plot([row["period"] for row in with_checks], [row["extent tuples"] for row in with_checks], marker="o")
    extents.set_title("Figure 9: extent, tuples")
    extents.set_ylim(bottom=0)
    return figure
