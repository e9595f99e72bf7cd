"""`peacefs dataflow`: continuous queries whose operators survive the loss of their machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

dataflow = typer.Typer(no_args_is_help=True, help="Fault-tolerant continuous queries.")


@dataflow.callback()
def about() -> None:
    """Fault-tolerant continuous queries (docs/dataflow.md)."""


@dataflow.command()
def demo(
    log: Annotated[
        Path | None, typer.Option("--input", metavar="FILE", help="An sshd log. [default: the demo's own]")
    ] = None,
    lines: Annotated[int, typer.Option("--lines", help="The log is repeated until there are so many.")] = 120_000,
    rate: Annotated[int, typer.Option("--rate", help="Lines a second.")] = 4_000,
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Working directory. [default: a temporary one]")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything there afterwards.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Only the report, as JSON, on stdout.")] = False,
) -> None:
    """Run a query on Spark executors, kill one, and compare.

    The query counts failed log-ins on three executors, in processes of their own. One is killed, later a datanode;
    the rows must be those of a batch over all lines.
    """
    from peacefs.spark_connector.dataflow_demo.app import Options, run_demo

    raise typer.Exit(
        run_demo(Options(input=log, lines=lines, lines_per_s=rate, directory=directory, keep=keep, json=as_json))
    )
