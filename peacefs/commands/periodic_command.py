"""`peacefs simulate periodic`: policies on periodic loads, as a table or JSON, and a picture of one link's
minute.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from peacefs.client.command_line.progress import run_progress
from peacefs.client.command_line.whole_table import print_whole
from peacefs.peace.simulator.link_minute import LinkMinute, link_minute
from peacefs.peace.simulator.periodic import PERIODIC_CASES, PERIODIC_POLICIES, PeriodicRow, run_periodic
from peacefs.protocol.errors import BadRequest

from .comparison_picture import require_matplotlib

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

_SEEDS: Final = 2
_USUAL = ("random", "sinbad", "express", "timely")

#: What the picture compares: phases, the case with these phases, and the policy.
_PICTURED = (
    ("phases aligned, express", "aligned", "express"),
    ("phases aligned, timely", "aligned", "timely"),
    ("phases planned, timely", "planned", "timely"),
)


def run_periodic_command(
    seeds: int | None, policies: Sequence[str], picture: Path | None, *, as_json: bool
) -> None:
    """Compare policies and print the result.

    Raises BadParameter for an unknown policy, Unsupported without matplotlib, BadRequest for a wrong format.
    """
    for name in policies:
        if name not in PERIODIC_POLICIES:
            raise typer.BadParameter(f"there is no policy {name!r}; there are {', '.join(PERIODIC_POLICIES)}")
    if picture is not None:
        require_matplotlib()
    chosen, count = tuple(dict.fromkeys(policies)) or _USUAL, seeds or _SEEDS
    with run_progress("periodic", len(PERIODIC_CASES) * len(chosen) * count) as on_run:
        rows = run_periodic(PERIODIC_CASES, chosen, range(count), on_run)
    if as_json:
        lines = ",\n ".join(json.dumps(dataclasses.asdict(row)) for row in rows)
        sys.stdout.write(f"[{lines}]\n")
    else:
        print_whole(_table(rows, count))
    if picture is not None:
        try:
            drawn([(title, link_minute(case, policy)) for title, case, policy in _PICTURED]).savefig(picture)
        except ValueError as error:
            raise BadRequest(f"{picture}: {error}") from None


def _table(rows: Sequence[PeriodicRow], count: int) -> Table:
    from rich import box
    from rich.table import Table

    seeds = f"{count} seed{'s' if count != 1 else ''}"
    table = Table(
        title=f"stretch of checkpoints (duration / duration alone), means over {seeds}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
    )
    headings = ("case", "load", "policy", "mean", "median", "p99", "worst", "p99\nbounded", "missed", "bulk")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("case", "policy") else "right", no_wrap=True)
    last = None
    for row in rows:
        if last not in (None, row.case):
            table.add_section()
        last = row.case
        table.add_row(
            row.case,
            f"{row.load:.2f}",
            row.policy,
            f"{row.mean:.2f}",
            f"{row.median:.2f}",
            f"{row.p99:.1f}",
            f"{row.worst:.0f}",
            f"{row.bounded_p99:.2f}",
            f"{row.missed:.1%}",
            "" if row.bulk_share is None else f"{row.bulk_share:.2f}",
        )
    return table


def drawn(minutes: Sequence[tuple[str, LinkMinute]]) -> Figure:
    """Return the figure: a panel per way, with the link's load in each second of a minute."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 2.2 * len(minutes)), layout="constrained")
    axes = figure.subplots(len(minutes), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axis, (title, minute) in zip(axes, minutes, strict=True):
        seconds = range(len(minute.bytes_s))
        axis.fill_between(seconds, [value / 1e6 for value in minute.bytes_s], step="post", alpha=0.6)
        axis.axhline(minute.capacity_bytes_s / 1e6, color="black", linewidth=0.8)
        axis.set_title(f"{title}: p99 of stretch {minute.p99:.1f}", loc="left", fontsize=10)
        axis.set_ylabel("MB/s")
    axes[-1].set_xlabel(f"seconds; {minutes[0][1].link}, and its capacity as a line")
    return figure
