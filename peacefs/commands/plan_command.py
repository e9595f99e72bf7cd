"""`peacefs plan`: show what a policy would do, on the network of a coordinator or of a file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from peacefs.client.command_line.listing import print_line
from peacefs.client.command_line.whole_table import add_row, print_whole
from peacefs.peace.dry_run import Assignment, DryRunPlan, DryRunRequest, Task, plan_on

if TYPE_CHECKING:
    from rich.table import Table

_OUTSIDE = "outside"


@dataclass(frozen=True)
class PlanOptions:
    """The command's options. All writers write the same amount; without `writers`, one writes from outside.

    If `topology` names a file, the plan is made here for its network, else by the coordinator for its datanodes.
    """

    policy: str
    seed: int
    writers: Sequence[str]
    replication: int
    chunks: int
    topology: Path | None
    coordinator: str
    json: bool


def run_plan(options: PlanOptions) -> None:
    """Print the plan. Raises BadRequest, InvalidTopology, and the coordinator's errors."""
    writers: Sequence[str | None] = options.writers or [None]
    requests = [DryRunRequest(writer, options.replication, options.chunks) for writer in writers]
    task = Task(options.policy, options.seed, requests)
    plan = _ask(task, options.coordinator) if options.topology is None else _plan_here(task, options.topology)
    if options.json:
        sys.stdout.write(msgspec.json.encode(plan).decode() + "\n")
        return
    print_whole(_table(plan, writers))
    sys.stdout.write(f"{_summary(plan)}\n")
    for each in plan.unplaced:
        print_line(f"chunk {each.chunk} of {writers[each.request] or _OUTSIDE}: {each.reason}")


def _plan_here(task: Task, file: Path) -> DryRunPlan:
    from peacefs.topology.loader import load_topology

    return plan_on(load_topology(file), task)


def _ask(task: Task, coordinator: str) -> DryRunPlan:
    from peacefs.client.control.addresses import parse_address
    from peacefs.client.control.api import CoordinatorApi, current_user
    from peacefs.client.control.http import CoordinatorHttp

    api = CoordinatorApi(CoordinatorHttp(parse_address(coordinator)), current_user())
    try:
        requests = msgspec.to_builtins(task.requests)
        return api.plan({"policy": task.policy, "seed": task.seed, "requests": requests}, DryRunPlan)
    finally:
        api.close()


def _table(plan: DryRunPlan, writers: Sequence[str | None]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for heading in ("step", "from s", "to s", "writer", "chunk", "pipeline"):
        is_text = heading in ("writer", "pipeline")
        table.add_column(heading, justify="left" if is_text else "right", overflow="fold")
    last: Assignment | None = None
    for each in plan.assignments:
        if last is not None and each.step != last.step:
            table.add_section()
        last = each
        add_row(
            table,
            str(each.step),
            f"{each.start_s:.1f}",
            f"{each.end_s:.1f}",
            writers[each.request] or _OUTSIDE,
            str(each.chunk),
            " → ".join(each.pipeline),
        )
    return table


def _summary(plan: DryRunPlan) -> str:
    steps = 1 + max((each.step for each in plan.assignments), default=-1)
    ends_s = max((each.end_s for each in plan.assignments), default=0.0)
    placed = f"{len(plan.assignments)} chunks in {steps} step{'s' if steps != 1 else ''}, {ends_s:.1f} s"
    return f"{placed}; {len(plan.unplaced)} without a place" if plan.unplaced else placed
