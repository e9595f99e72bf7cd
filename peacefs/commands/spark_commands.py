"""`peacefs spark`: print the settings with which Spark checkpoints on peacefs."""

from __future__ import annotations

from typing import Annotated

import typer

from peacefs.client.control.addresses import DEFAULT_ADDRESS
from peacefs.runtime.tls_variables import TRUSTSTORE_VARIABLE

spark = typer.Typer(
    help="Show Spark's settings for checkpoints on peacefs.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@spark.callback()
def _group() -> None:
    """Make this a group, although it has one command."""


@spark.command()
def conf(
    spark_version: Annotated[
        str | None,
        typer.Option(
            "--spark-version",
            metavar="V",
            help="The version of Spark, 3.5 or newer. [default: the installed one, else the newest]",
        ),
    ] = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format", help="Output for spark-defaults.conf (defaults), for spark-submit (submit), or as json."
        ),
    ] = "defaults",
    root: Annotated[
        str, typer.Option("--root", metavar="DIR", help="Default checkpoint root of queries.")
    ] = "/checkpoints",
    query: Annotated[
        str | None,
        typer.Option(
            "--query",
            metavar="KIND",
            help="Add the settings of a kind of query: micro-batch, join, or real-time.",
        ),
    ] = None,
    coordinator: Annotated[
        str,
        typer.Option(
            "--coordinator",
            "-c",
            envvar=["PEACEFS_URL", "PEACEFS_COORDINATOR"],
            metavar="URL",
            help="The address by which Spark reaches the coordinator: http://host:port or https://; several "
            "separated by commas.",
        ),
    ] = DEFAULT_ADDRESS.http,
    truststore: Annotated[
        str | None,
        typer.Option(
            "--truststore",
            envvar=TRUSTSTORE_VARIABLE,
            metavar="FILE",
            help="With https://: path, where Spark runs, of the truststore made by `peacefs certificates create`.",
        ),
    ] = None,
) -> None:
    """Print the settings for a version of Spark, each with its reason."""
    from peacefs.client.command_line.errors import report_error
    from peacefs.client.command_line.listing import print_line
    from peacefs.protocol.errors import PeacefsError
    from peacefs.spark_connector.session import installed_spark, settings
    from peacefs.spark_connector.setting_formats import FORMATS

    if format_ not in FORMATS:
        raise typer.BadParameter(f"{format_!r} is none of {', '.join(FORMATS)}", param_hint="--format")
    try:
        table = settings(coordinator, root, spark_version or installed_spark(), truststore, query)
    except PeacefsError as mistake:
        report_error("spark conf", mistake.message)
        raise typer.Exit(1) from None
    for line in FORMATS[format_](table).split("\n"):
        print_line(line)
