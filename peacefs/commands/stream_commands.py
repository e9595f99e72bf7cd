"""`peacefs stream`: list, read, follow and trim durable logs of streams."""

from __future__ import annotations

import re
import time
from typing import Annotated

import typer

from peacefs.client.command_line.options import DEFAULT_COORDINATOR, Coordinator, open_session

stream = typer.Typer(
    help="List, read, follow and trim the logs of streams. A PATH may be file:///... on this machine.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Logs = Annotated[list[str], typer.Argument(metavar="PATH", show_default=False)]
Log = Annotated[str, typer.Argument(metavar="PATH", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Numbered = Annotated[bool, typer.Option("--number", "-n", help="Begin each line with the row's number.")]


@stream.command("ls")
def list_(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH", help="[default: /]", show_default=False)
    ] = None,
    as_json: Json = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """List the logs at and below paths.

    For each: the numbers of its first and last row, its segments and size, and its time column.
    """
    from peacefs.dataflow.logs.log_commands import list_logs

    with open_session("stream ls", coordinator) as session:
        list_logs(session, paths or ["/"], as_json=as_json)


@stream.command()
def cat(
    paths: Logs,
    first: Annotated[
        int | None, typer.Option("--from", metavar="N", min=1, help="From this row. [default: the first]")
    ] = None,
    upto: Annotated[int | None, typer.Option("--upto", metavar="N", min=1, help="Up to this row.")] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="From the first row of this time or later, in UTC."),
    ] = None,
    numbered: Numbered = False,
    as_json: Json = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Write the rows of logs to stdout.

    A line a row, with a tab between values. Rows before a rotten record are written, and where it is is said.
    """
    from peacefs.dataflow.logs.log_commands import RowStyle, print_logs

    with open_session("stream cat", coordinator) as session:
        print_logs(session, paths, RowStyle(as_json, numbered), first=first, upto=upto, since=since)


@stream.command()
def tail(
    path: Log,
    lines: Annotated[
        str, typer.Option("--lines", "-n", metavar="[+]N", help="The last N rows, or those from row N on.")
    ] = "10",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="And those that come, until Ctrl-C.")] = False,
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
        int | None, typer.Option("--upto", metavar="N", min=0, help="Rows up to this one are not needed.")
    ] = None,
    before: Annotated[
        str | None, typer.Option("--before", metavar="TIME", help="Rows before this time, in UTC, are not.")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="Rows older than 12h, 7d, ... are not.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Drop the oldest segments of a log.

    Whole segments go, all of whose rows are not needed; the last one stays.
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
