"""Declares `peacefs mount`: its arguments and `--help`. `mounting.py` executes it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import DEFAULT_COORDINATOR, Coordinator


def mount(
    directory: Annotated[Path, typer.Argument(metavar="DIR", show_default=False, help="An existing directory.")],
    background: Annotated[
        bool,
        typer.Option(
            "--background", "-b", help="Return once the directory is mounted; `umount DIR` ends the mount."
        ),
    ] = False,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--options",
            "-o",
            metavar="OPTION,...",
            help="Options of mount(8), such as allow_other, ro, noexec; also token_file=FILE, ca_file=FILE, "
            "staging=DIR, staging_size=BYTES.",
        ),
    ] = None,
    staging: Annotated[
        Path | None,
        typer.Option(
            "--staging", metavar="DIR", help="Directory for changed files. [default: the temporary directory]"
        ),
    ] = None,
    staging_size: Annotated[
        str, typer.Option("--staging-size", metavar="BYTES", help="Maximum size of all staged files together.")
    ] = "1g",
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Mount the file system on a directory.

    It stays mounted until Ctrl-C or umount. Needs libfuse 3 and the extra `mount`. Other machines see a written
    file when it is closed or synced.
    """
    from .mounting import MountRequest, run_mount

    request = MountRequest(directory, coordinator, background, staging, staging_size)
    raise typer.Exit(run_mount(request.with_options(options or [])))
