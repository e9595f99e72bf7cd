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


@dataflow.command()
def advise(
    query: Annotated[
        str, typer.Argument(metavar="FILE[:NAME]", help="Python file that makes a Query, and its name there.")
    ],
    rate: Annotated[float, typer.Option("--rate", min=0.001, help="Rows of all sources a second.")],
    sample: Annotated[
        list[str],
        typer.Option("--sample", metavar="SOURCE=FILE", help="Rows of a source: .parquet, .csv or .json."),
    ],
    guarantee: Annotated[
        str,
        typer.Option(
            "--guarantee",
            help="At least: precise, repeating, convergent, divergent or gap.",
        ),
    ] = "precise",
    recover_within: Annotated[
        float | None, typer.Option("--recover-within", metavar="SECONDS", help="From a death until caught up.")
    ] = None,
    processor: Annotated[
        float | None, typer.Option("--processor", metavar="SHARE", help="Processor time it may add, 0.1 for 10 %.")
    ] = None,
    traffic: Annotated[
        float | None, typer.Option("--traffic", metavar="SHARE", help="Bytes it may move, of those of the rows.")
    ] = None,
    memory: Annotated[
        float | None, typer.Option("--memory", metavar="MB", help="Memory it may take beside the state.")
    ] = None,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", help="M of HA: acknowledgements and copies.")
    ] = 0.05,
    checkpoint: Annotated[
        float, typer.Option("--checkpoint", metavar="SECONDS", help="Interval of SGuard's checkpoints.")
    ] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """Say which recovery technique fits a query.

    The query's load is measured on samples of its rows; costs and recovery follow by the papers' closed forms.
    Status 1 if no technique keeps what is wanted.
    """
    from peacefs.dataflow.advice.advice import Demand
    from peacefs.dataflow.advice.load import Parameters

    from .advise_command import AdviceOptions, recovery_named, run_advise

    wanted = recovery_named(guarantee)
    demand = Demand(wanted, recover_within, processor, traffic, None if memory is None else memory * 1e6)
    parameters = Parameters(interval_s=interval, checkpoint_s=checkpoint)
    raise typer.Exit(run_advise(AdviceOptions(query, sample, rate, demand, parameters, as_json)))
