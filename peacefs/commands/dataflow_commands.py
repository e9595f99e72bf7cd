"""`peacefs dataflow`: continuous queries whose operators survive the loss of their machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import dataflow_control

dataflow = typer.Typer(no_args_is_help=True, help="Fault-tolerant continuous queries.")


@dataflow.callback()
def about() -> None:
    """Fault-tolerant continuous queries (docs/dataflow.md)."""


dataflow.command()(dataflow_control.run)
dataflow.command("list")(dataflow_control.list_)
dataflow.command()(dataflow_control.show)
dataflow.command()(dataflow_control.stop)
dataflow.command()(dataflow_control.logs)


@dataflow.command()
def demo(
    log: Annotated[
        Path | None, typer.Option("--input", metavar="FILE", help="An sshd log. [default: the demo's own]")
    ] = None,
    lines: Annotated[
        int, typer.Option("--lines", help="Number of lines; the log is repeated if it is shorter.")
    ] = 120_000,
    rate: Annotated[int, typer.Option("--rate", help="Lines per second.")] = 4_000,
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Working directory. [default: a temporary one]")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep all files in the working directory.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the report, as JSON, to stdout.")] = False,
) -> None:
    """Run a query on Spark executors, kill one, and compare.

    The query counts failed log-ins on three executors, each a process. Kills one executor, and later a datanode.
    The rows must equal those of a batch over all lines.
    """
    from peacefs.spark_connector.dataflow_demo.app import Options, run_demo

    raise typer.Exit(
        run_demo(Options(input=log, lines=lines, lines_per_s=rate, directory=directory, keep=keep, json=as_json))
    )


@dataflow.command()
def advise(
    query: Annotated[
        str, typer.Argument(metavar="FILE[:NAME]", help="Python file that makes a Query, and the variable's name.")
    ],
    rate: Annotated[float, typer.Option("--rate", min=0.001, help="Rows per second of all sources.")],
    sample: Annotated[
        list[str],
        typer.Option(
            "--sample", metavar="SOURCE=FILE", help="File with sample rows of a source: .parquet, .csv or .json."
        ),
    ],
    guarantee: Annotated[
        str,
        typer.Option(
            "--guarantee",
            help="Minimum guarantee: precise, repeating, convergent, divergent or gap.",
        ),
    ] = "precise",
    recover_within: Annotated[
        float | None,
        typer.Option(
            "--recover-within",
            metavar="SECONDS",
            help="Maximum time from a failure until the query has caught up.",
        ),
    ] = None,
    processor: Annotated[
        float | None,
        typer.Option("--processor", metavar="SHARE", help="Maximum additional processor time; 0.1 means 10 %."),
    ] = None,
    traffic: Annotated[
        float | None,
        typer.Option(
            "--traffic", metavar="SHARE", help="Maximum additional bytes, as a share of the rows' bytes."
        ),
    ] = None,
    memory: Annotated[
        float | None, typer.Option("--memory", metavar="MB", help="Maximum memory beside the state.")
    ] = None,
    interval: Annotated[
        float,
        typer.Option("--interval", metavar="SECONDS", help="Interval of acknowledgements and copies (HA's M)."),
    ] = 0.05,
    checkpoint: Annotated[
        float, typer.Option("--checkpoint", metavar="SECONDS", help="Interval of SGuard's checkpoints.")
    ] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON to stdout.")] = False,
) -> None:
    """Say which recovery technique fits a query.

    Measures the query's load on samples of its rows, and estimates costs and recovery with the papers' closed
    forms. Exit status 1 if no technique meets the demand.
    """
    from peacefs.dataflow.advice.advice import Demand
    from peacefs.dataflow.advice.load import Parameters

    from .advise_command import AdviceOptions, recovery_named, run_advise

    wanted = recovery_named(guarantee)
    demand = Demand(wanted, recover_within, processor, traffic, None if memory is None else memory * 1e6)
    parameters = Parameters(interval_s=interval, checkpoint_s=checkpoint)
    raise typer.Exit(run_advise(AdviceOptions(query, sample, rate, demand, parameters, as_json)))
