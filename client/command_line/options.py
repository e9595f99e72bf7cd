"""Options and arguments that several commands share, and the session for commands on files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from peacefs.client.control.addresses import DEFAULT_ADDRESS
from peacefs.protocol.values.authentication import AuthenticationMode

if TYPE_CHECKING:
    from .session import Session

trash_minutes_max: Final = 10 * 366 * 24 * 60


#: Environment variables with the coordinator's address for clients. The first one that is set wins.
COORDINATOR_VARIABLES: Final = ("PEACEFS_URL", "PEACEFS_COORDINATOR")
Coordinator = Annotated[
    str,
    typer.Option(
        "--coordinator",
        "-c",
        envvar=list(COORDINATOR_VARIABLES),
        metavar="URL",
        help="Address of the coordinator: http://host:port, https:// for TLS, or unix:DIR for administrators on "
        "its machine. Paths that are webhdfs:// or swebhdfs:// URIs contain the address.",
    ),
]
DEFAULT_COORDINATOR = DEFAULT_ADDRESS.http
TrashMinutes = Annotated[
    int,
    typer.Option(
        "--trash-minutes",
        metavar="N",
        min=0,
        max=trash_minutes_max,
        help="Minimum time that files removed by `peacefs rm` stay in the user's trash; 0 for no trash.",
    ),
]
Authentication = Annotated[
    AuthenticationMode | None,
    typer.Option(
        "--authentication",
        help="Authentication of callers: simple believes user names, token requires a token (`peacefs token`)."
        " [default: simple if only this machine reaches the coordinator, else token]",
        show_default=False,
    ),
]
Paths = Annotated[list[str], typer.Argument(metavar="PATH", show_default=False)]


@contextlib.contextmanager
def open_session(command: str, coordinator: str) -> Iterator[Session]:
    """Open a session for `command`. On exit, end the process with status 1 if any path had an error."""
    from .session import Session

    with Session(command, coordinator) as session:
        yield session
    if session.errors.any:
        raise typer.Exit(1)
