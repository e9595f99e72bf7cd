"""Options of commands that register supervised queries."""

from __future__ import annotations

from typing import Annotated

import typer

from peacefs.protocol.limits import supervised_restarts_max

OnAgents = Annotated[
    list[str] | None,
    typer.Option("--on", metavar="NODE", help="Run only on this agent, given by name or host; may be repeated."),
]
Restarts = Annotated[
    int,
    typer.Option(
        "--restarts",
        metavar="N",
        min=0,
        max=supervised_restarts_max,
        help="Failures after which the query is given up; a run of ten minutes resets the count.",
    ),
]
