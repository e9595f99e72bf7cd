"""Pictures: latency around the first failure for each technique, and cost against recovery time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from .contest import Played
from .tables import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = 3
_BEFORE_S, _AFTER_S = 1.0, 4.0
_LATENCIES_MS = 1.0, 20_000.0
#: The number of colours in matplotlib's cycle.
_COLORS = 10
_MARKERS = {"processes": "o", "executors": "s", "spark": "^"}


def latency_figure(query: str, found: Mapping[Cell, Played]) -> Figure:
    """Draw a small picture for each technique: arrival times and latencies of rows."""
    from matplotlib.figure import Figure

    lines = math.ceil(len(found) / _COLUMNS)
    figure = Figure(figsize=(10.0, 0.6 + 1.7 * lines), layout="constrained")
    axes = figure.subplots(lines, _COLUMNS, sharex=True, sharey=True, squeeze=False)
    for axis, (cell, played) in zip(axes.flat, found.items(), strict=False):
        line = played.timeline
        killed_s = line.kills_s[0]
        came = np.isfinite(line.arrived_s)
        at, late = line.arrived_s[came] - killed_s, (line.arrived_s - line.offered_s)[came]
        inside = (at > -_BEFORE_S) & (at < _AFTER_S)
        axis.plot(at[inside], 1000 * late[inside], ".", markersize=1.5)
        axis.axvline(0, color="black", linewidth=0.8)
        recovered_s = line.recoveries_s()[0]
        if math.isfinite(recovered_s):
            axis.axvline(recovered_s, color="tab:green", linewidth=0.8, linestyle="--")
        axis.set_title(f"{cell.technique} ({cell.host})", fontsize="small")
        axis.set_yscale("log")
        axis.set_xlim(-_BEFORE_S, _AFTER_S)
        axis.set_ylim(*_LATENCIES_MS)
        axis.tick_params(labelsize="x-small")
    for axis in list(axes.flat)[len(found) :]:
        axis.set_visible(False)
    figure.suptitle(f"{query}: latency, ms, by seconds since the SIGKILL (dashed: recovered)", fontsize="medium")
    return figure


def cost_figure(found: Mapping[Cell, Played]) -> Figure:
    """Draw processor time and bytes against recovery time: a point per technique, a row per query."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter

    found = {cell: each for cell, each in found.items() if math.isfinite(max(each.timeline.recoveries_s()))}
    queries = list(dict.fromkeys(cell.query for cell in found))
    names = dict.fromkeys(cell.technique for cell in found)
    colors = {name: f"C{number}" if number < _COLORS else "black" for number, name in enumerate(names)}
    figure = Figure(figsize=(10.0, 4.2 * max(1, len(queries))), layout="constrained")
    if not found:
        return figure
    axes = figure.subplots(len(queries), 2, squeeze=False)
    for (by_time, by_bytes), query in zip(axes, queries, strict=True):
        mine = {cell: played for cell, played in found.items() if cell.query == query}
        for cell, played in mine.items():
            recovered_ms = 1000 * statistics.median(played.timeline.recoveries_s())
            usage = played.usage
            for axis, cost in ((by_time, usage.processor_us), (by_bytes, usage.link_bytes)):
                color = colors[cell.technique]
                axis.plot(cost, recovered_ms, marker=_MARKERS[cell.host], color=color)
        for axis, label in ((by_time, "processor time, µs a row"), (by_bytes, "bytes a row over loopback")):
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.margins(0.1)
            for scale in (axis.xaxis, axis.yaxis):
                scale.set_major_locator(LogLocator(subs=(1, 2, 5)))
                scale.set_minor_locator(NullLocator())
                scale.set_major_formatter(ScalarFormatter())
            axis.tick_params(labelsize="x-small")
            axis.set_xlabel(label)
            axis.set_title(query, fontsize="small")
        by_time.set_ylabel("recovered, ms after the SIGKILL")
    points = {name: ("o", color) for name, color in colors.items()}
    points |= {f"on {host}": (marker, "lightgrey") for host, marker in _MARKERS.items()}
    shown = [Line2D([], [], marker=marker, color=color, linestyle="") for marker, color in points.values()]
    figure.legend(shown, list(points), loc="outside lower center", ncols=5, fontsize="x-small")
    return figure
