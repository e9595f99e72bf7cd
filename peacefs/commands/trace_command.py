"""The declaration of `peacefs trace`, which draws where a request's time went, from the files of `--traces`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def trace(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", show_default=False, help="Files written by --traces FILE.")
    ],
    request: Annotated[
        str | None,
        typer.Option(
            "--request", metavar="ID", help="The request to draw. [default: the slowest]", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per span.")] = False,
) -> None:
    """Draw where the time of a request went."""
    from peacefs.client.command_line.errors import report_error
    from peacefs.client.command_line.listing import print_line
    from peacefs.protocol.errors import BadRequest

    from .trace_drawing import as_records, drawn, read_spans, slowest

    try:
        spans = read_spans(files)
        wanted = slowest(spans) if request is None else request
        lines = as_records(spans, wanted) if as_json else drawn(spans, wanted)
    except BadRequest as mistake:
        report_error("trace", mistake.message)
        raise typer.Exit(1) from None
    for line in lines:
        print_line(line)
