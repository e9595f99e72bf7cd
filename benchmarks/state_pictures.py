"""Pictures of SGuard's Figures 6 to 9, from new measurements, saved with the JSON results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from .report import RESULTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Line = Sequence[tuple[float, float]]


def draw_latency(name: str, title: str, lines: Mapping[str, Line]) -> Path | None:
    """Draw Figures 7 and 8: the latency of tuples around a checkpoint."""
    return draw(name, latency_figure(title, lines) if find_spec("matplotlib") else None)


def draw_sizes(name: str, title: str, unit: str, lines: Mapping[str, Line]) -> Path | None:
    """Draw Figures 6 and 9: a time that grows with the size of the state."""
    return draw(name, size_figure(title, unit, lines) if find_spec("matplotlib") else None)


def draw(name: str, figure: Figure | None) -> Path | None:
    """Write a picture and print its path. Without matplotlib, print that there is no picture."""
    if figure is None:
        print(f"no picture {name}: matplotlib is not installed (peacefs[picture])")
        return None
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.png"
    figure.savefig(path, dpi=120)
    print(f"picture: {path}")
    return path


def latency_figure(title: str, lines: Mapping[str, Line]) -> Figure:
    """Draw latency on a logarithmic scale, as in the paper, with a line for each way."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.5), layout="constrained")
    axis = figure.subplots()
    for way, line in lines.items():
        seconds, latencies = zip(*line, strict=True)
        axis.plot(seconds, latencies, label=way, linewidth=1.0)
    axis.set_yscale("log")
    axis.set_title(title)
    axis.set_xlabel("seconds from the first checkpoint")
    axis.set_ylabel("latency of tuples, ms")
    axis.legend(fontsize="small")
    return figure


def size_figure(title: str, unit: str, lines: Mapping[str, Line]) -> Figure:
    """Draw time against MiB of state, both logarithmic, with a line for each way."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 4.5), layout="constrained")
    axis = figure.subplots()
    for way, line in lines.items():
        sizes, times = zip(*line, strict=True)
        axis.plot(sizes, times, marker="o", label=way)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_title(title)
    axis.set_xlabel("MiB of state")
    axis.set_ylabel(unit)
    axis.legend(fontsize="small")
    return figure
