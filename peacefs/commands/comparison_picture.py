"""Draw a comparison of policies: time against writers, with a panel per set size and a line per policy.

matplotlib is an extra, imported only here and only when needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from peacefs.peace.simulator.comparison import Row
from peacefs.protocol.errors import BadRequest, Unsupported

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Line = list[tuple[int, float]]


def require_matplotlib() -> None:
    """Raise Unsupported if matplotlib is not installed."""
    try:
        importlib.import_module("matplotlib.figure")
    except ImportError:
        raise Unsupported("a picture needs matplotlib: install peacefs[picture]") from None


def lines_of(rows: Sequence[Row]) -> dict[int, dict[str, Line]]:
    """Return the lines by size of set, then by policy: (writers, mean seconds from request), writers ascending.

    The last line of each panel is `bound`.
    """
    panels: dict[int, dict[str, Line]] = {}
    for row in sorted(rows, key=lambda row: row.writers):
        panels.setdefault(row.mb, {}).setdefault(row.policy, []).append((row.writers, row.from_request_s))
    for mb, panel in panels.items():
        bounds = {row.writers: row.bound_mean_s for row in rows if row.mb == mb}
        panel["bound"] = sorted(bounds.items())
    return dict(sorted(panels.items()))


def draw(rows: Sequence[Row], title: str, path: Path) -> None:
    """Write the picture. The file's suffix chooses the format. Raises BadRequest for an unknown format."""
    try:
        drawn(rows, title).savefig(path)
    except ValueError as error:
        raise BadRequest(f"{path}: {error}") from None


def drawn(rows: Sequence[Row], title: str) -> Figure:
    """Return the figure: a panel per size, all with the same scale of seconds."""
    from matplotlib.figure import Figure

    panels = lines_of(rows)
    figure = Figure(figsize=(4.5 * len(panels), 4.0), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (mb, panel) in zip(axes, panels.items(), strict=True):
        for name, line in panel.items():
            writers, seconds = zip(*line, strict=True)
            style = {"linestyle": "--", "color": "grey"} if name == "bound" else {"marker": "o"}
            axis.plot(writers, seconds, label=name, **style)
        axis.set_title(f"{mb} MB a writer" if mb else "mixed sizes")
        axis.set_xlabel("writers")
        axis.set_xticks(sorted({writers for line in panel.values() for writers, _ in line}))
    # Set the limit last, and once for all panels: setting it stops matplotlib's autoscaling.
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel("seconds from request, mean")
    axes[-1].legend()
    return figure
