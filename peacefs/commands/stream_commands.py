"""`peacefs stream`: list, read, follow and trim durable logs of streams."""

from __future__ import annotations

import re
import time
from typing import Annotated

import typer

from peacefs.client.command_line.options import DEFAULT_COORDINATOR, Coordinator, open_session

stream = typer.Typer(
    help="List, read, follow and trim stream logs. A PATH may be file:///... on this machine.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Logs = Annotated[list[str], typer.Argument(metavar="PATH", show_default=False)]
Log = Annotated[str, typer.Argument(metavar="PATH", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Numbered = Annotated[bool, typer.Option("--number", "-n", help="Print the row's number before each line.")]


@stream.command("ls")
def list_(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH", help="[default: /]", show_default=False)
    ] = None,
    as_json: Json = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """List the logs at and below paths.

    Shows the numbers of the first and last row, the segments, the size and the time column of each.
    """
    from peacefs.dataflow.logs.log_commands import list_logs

    with open_session("stream ls", coordinator) as session:
        list_logs(session, paths or ["/"], as_json=as_json)


@stream.command()
def cat(
    paths: Logs,
    first: Annotated[
        int | None, typer.Option("--from", metavar="N", min=1, help="First row to print. [default: the first row]")
    ] = None,
    upto: Annotated[int | None, typer.Option("--upto", metavar="N", min=1, help="Last row to print.")] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Begin with the first row of this time or later, in UTC."),
    ] = None,
    numbered: Numbered = False,
    as_json: Json = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Write the rows of logs to stdout.

    Writes one line per row, with tabs between values. At a corrupt record, writes the rows before it and reports
    its position.
    """
    from peacefs.dataflow.logs.log_commands import RowStyle, print_logs

    with open_session("stream cat", coordinator) as session:
        print_logs(session, paths, RowStyle(as_json, numbered), first=first, upto=upto, since=since)


@stream.command()
def tail(
    path: Log,
    lines: Annotated[
        str,
        typer.Option(
            "--lines", "-n", metavar="[+]N", help="Print the last N rows, or with +N all rows from number N."
        ),
    ] = "10",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Also print new rows, until Ctrl-C.")] = False,
    as_json: Json = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Write the last rows of a log to stdout."""
    from peacefs.dataflow.logs.log_commands import RowStyle, follow_log

    if not re.fullmatch(r"\+?\d{1,18}", lines):
        raise typer.BadParameter("a number of rows, or +N, is wanted", param_hint="--lines")
    with open_session("stream tail", coordinator) as session:
        follow_log(session, path, RowStyle(as_json), lines=lines, follow=follow)


@stream.command()
def trim(
    path: Log,
    upto: Annotated[
        int | None, typer.Option("--upto", metavar="N", min=0, help="Trim rows up to this number.")
    ] = None,
    before: Annotated[
        str | None, typer.Option("--before", metavar="TIME", help="Trim rows before this time, in UTC.")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="Trim rows older than 12h, 7d, ...")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Drop the oldest segments of a log.

    Deletes only whole segments, of which no row is needed. The last segment stays.
    """
    from peacefs.dataflow.logs.log_commands import trim_log

    if sum(each is not None for each in (upto, before, older_than)) != 1:
        raise typer.BadParameter("give one of --upto, --before and --older-than")
    with open_session("stream trim", coordinator) as session:
        trim_log(
            session,
            path,
            upto=upto,
            before=before,
            older_than=older_than,
            dry_run=dry_run,
            now_us=time.time_ns() // 1000,
        )
