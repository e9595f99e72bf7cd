"""`peacefs simulate`: policies side by side in the model of `peace`, as a table, JSON and a picture."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from peacefs.client.command_line.progress import run_progress
from peacefs.client.command_line.whole_table import print_whole
from peacefs.peace.simulator.comparison import POLICIES, Row, run_scenario, usual_policies
from peacefs.peace.simulator.scenarios import SCENARIOS

if TYPE_CHECKING:
    from rich.table import Table

#: The policy that the others are compared with.
_BASELINE = "random"

_SEEDS = 20


@dataclass(frozen=True)
class SimulateOptions:
    """A simulation to run: with the scenario's usual policies, and number of seeds, if none are named."""

    scenario: str
    seeds: int | None = None
    policies: Sequence[str] = ()
    json: bool = False
    picture: Path | None = None


def run_simulate(options: SimulateOptions) -> None:
    """Simulate a scenario and print the result.

    Raises BadParameter for an unknown scenario or policy, and Unsupported if an extra is missing, before anything
    is simulated.
    """
    _check("scenario", [options.scenario], (*SCENARIOS, "periodic"))
    _check("policy", options.policies, POLICIES)
    if options.picture is not None:
        from .comparison_picture import require_matplotlib

        require_matplotlib()
    policies = tuple(dict.fromkeys(options.policies)) or usual_policies(options.scenario)
    seeds = _SEEDS if options.seeds is None else options.seeds
    runs = len(SCENARIOS[options.scenario]()) * len(policies) * seeds
    with run_progress(options.scenario, runs) as on_run:
        rows = run_scenario(options.scenario, range(seeds), policies, on_run)
    if options.json:
        lines = ",\n ".join(json.dumps(dataclasses.asdict(row)) for row in rows)
        sys.stdout.write(f"[{lines}]\n")
    else:
        print_whole(_table(options.scenario, seeds, rows))
    if options.picture is not None:
        from .comparison_picture import draw

        draw(rows, options.scenario, options.picture)


def _check(what: str, names: Sequence[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"there is no {what} {name!r}; there are {', '.join(known)}")


def _table(scenario: str, count: int, rows: Sequence[Row]) -> Table:
    from rich import box
    from rich.table import Table

    seeds = f"{count} seed{'s' if count != 1 else ''}"
    table = Table(
        title=f"{scenario}: seconds, means over {seeds}; in brackets, times {_BASELINE}'s",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
    )
    headings = ("writers", "MB", "policy", "from\nrequest", "span", "makespan", "mean\nbound", "makespan\nbound")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "policy" else "right", no_wrap=True)
    baselines = {(row.writers, row.mb): row for row in rows if row.policy == _BASELINE}
    last = None
    for row in rows:
        case = row.writers, row.mb
        if last not in (None, case):
            table.add_section()
        last, baseline = case, baselines.get(case)
        table.add_row(
            str(row.writers),
            str(row.mb) if row.mb else "mixed",
            row.policy,
            _compared(row.from_request_s, baseline.from_request_s if baseline else None),
            _compared(row.span_s, baseline.span_s if baseline else None),
            _compared(row.makespan_s, baseline.makespan_s if baseline else None),
            f"{row.bound_mean_s:.1f}",
            f"{row.bound_makespan_s:.1f}",
        )
    return table


def _compared(seconds: float, baseline: float | None) -> str:
    return f"{seconds:.1f}" if baseline is None else f"{seconds:.1f} ({seconds / baseline:.2f})"
