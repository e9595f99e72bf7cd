"""Options that those commands share which start services."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Host = Annotated[str, typer.Option("--host", help="The address to bind. Others than loopback need --secret-file.")]
Advertise = Annotated[
    str | None,
    typer.Option("--advertise", metavar="HOST", help="How others reach this service. [default: --host]"),
]
SecretFile = Annotated[
    Path | None,
    typer.Option(
        "--secret-file", metavar="FILE", envvar="PEACEFS_SECRET_FILE", help="The secret that all services share."
    ),
]
ReadyDescriptor = Annotated[
    int | None,
    typer.Option("--ready-fd", metavar="FD", help="Write one line of JSON there when ready, then close it."),
]
ParentDescriptor = Annotated[
    int | None,
    typer.Option("--parent-fd", metavar="FD", help="Stop when this pipe comes to its end."),
]
NodePort = Annotated[
    str, typer.Option("--coordinator", metavar="HOST:PORT", help="The coordinator's port for datanodes.")
]


def node_address(text: str) -> tuple[str, int]:
    """HOST:PORT of the coordinator's port for datanodes and agents."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise typer.BadParameter(f"{text!r} is not HOST:PORT", param_hint="--coordinator")
    return host.removeprefix("[").removesuffix("]"), int(port)
