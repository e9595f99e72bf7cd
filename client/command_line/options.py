"""Options that several groups of commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Coordinator = Annotated[
    str,
    typer.Option(
        "--coordinator",
        "-c",
        envvar="PEACEFS_COORDINATOR",
        metavar="URL",
        help="Where the coordinator is: http://host:port. Paths that are webhdfs:// URIs name their own.",
    ),
]
