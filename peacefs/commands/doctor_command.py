"""The declaration of `peacefs doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from peacefs.client.command_line.options import DEFAULT_COORDINATOR, Coordinator


def doctor(
    directories: Annotated[
        list[Path] | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Also measure the disk of this directory on this machine; may be repeated.",
            show_default=False,
        ),
    ] = None,
    spark_settings: Annotated[
        Path | None,
        typer.Option(
            "--spark-conf",
            metavar="FILE",
            help="The spark-defaults.conf to check. [default: that of SPARK_CONF_DIR, or of the installed Spark]",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per finding.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Check a cluster and this machine; say what to change.

    Exit status: 0 nothing to do, 1 a fault of the check itself, 2 wrong usage, 3 something works and should be
    changed, 4 something does not work.
    """
    from .doctor.visit import visit

    raise typer.Exit(visit(coordinator, directories or (), spark_settings, as_json=as_json))
