"""`peacefs dataflow run`, `list`, `show`, `stop` and `logs`: dataflows that agents keep running."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from peacefs.client.command_line.options import DEFAULT_COORDINATOR, Coordinator
from peacefs.protocol.limits import supervised_restarts_default

from .supervision_options import OnAgents, Restarts

if TYPE_CHECKING:
    from peacefs.protocol.values.query_reports import DataflowReport
    from peacefs.protocol.values.supervised_queries import QueryStatus

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the query.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON to stdout.")]


def run(
    program: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Python program that calls peacefs.dataflow.programs.run.", show_default=False
        ),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- ARGUMENT...]", help="Arguments of the program.", show_default=False),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the query. [default: the file's, without .py]")
    ] = None,
    directory: Annotated[
        str | None,
        typer.Option(
            "--directory",
            metavar="PATH",
            help="Where the cluster keeps its checkpoints. [default: /user/USER/dataflows/NAME]",
        ),
    ] = None,
    on: OnAgents = None,
    restarts: Restarts = supervised_restarts_default,
    as_json: AsJson = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Hand a query to the cluster, which keeps it running.

    An agent starts the program, and another one if that dies. The query continues from its checkpoints.
    """
    from peacefs.dataflow.programs.submission import submit

    from .supervision_commands import show_status

    status = submit(
        program,
        arguments or (),
        coordinator=coordinator,
        name=name,
        directory=directory,
        on=on or (),
        restarts_max=restarts,
    )
    show_status(status, as_json=as_json)


def list_(as_json: AsJson = False, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """List the queries that the cluster keeps running."""
    import msgspec

    from peacefs.client.command_line.listing import print_line
    from peacefs.client.control.supervised_queries import SupervisedQueries

    with SupervisedQueries(coordinator) as queries:
        found = [query for query in queries.all().queries if _is_dataflow(query)]
    if as_json:
        print_line(msgspec.json.encode(found).decode())
        return
    from rich.table import Table

    from peacefs.client.command_line.whole_table import add_row, print_whole

    table = Table("query", "is", "on", "user", "directory", "failed", "because")
    for query in found:
        failed = f"{query.restarts} of {query.restarts_max}"
        add_row(table, query.name, query.phase, query.agent, query.user, query.checkpoint, failed, query.reason)
    print_whole(table)


def show(name: Name, as_json: AsJson = False, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Show a query with its units, checkpoints and rows.

    Its program reports these every two seconds.
    """
    import msgspec

    from peacefs.client.command_line.listing import print_line
    from peacefs.client.control.addresses import parse_address
    from peacefs.client.control.query_runs import CheckpointRuns
    from peacefs.client.control.supervised_queries import SupervisedQueries
    from peacefs.client.control.token_source import TokenSource

    from .supervision_commands import show_status

    with SupervisedQueries(coordinator) as queries:
        status = _existing(queries.status(name))
    with CheckpointRuns(parse_address(coordinator), None, TokenSource.of(None)) as runs:
        found = [each for each in runs.reports(status.checkpoint) if each.location == status.location]
    report = found[0].dataflow if found else None
    if as_json:
        print_line(msgspec.json.encode({**msgspec.to_builtins(status), "report": report}).decode())
        return
    show_status(status, as_json=False)
    if report is None:
        return
    _print_report(report)


def stop(name: Name, as_json: AsJson = False, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Stop a query after a last checkpoint.

    Started again with `peacefs dataflow run`, it continues from there.
    """
    from peacefs.client.control.supervised_queries import SupervisedQueries

    from .supervision_commands import show_status

    with SupervisedQueries(coordinator) as queries:
        _existing(queries.status(name))
        show_status(queries.stop(name), as_json=as_json)


def logs(name: Name, as_json: AsJson = False, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Print the end of the log of a query's last run."""
    import msgspec

    from peacefs.client.command_line.listing import print_line
    from peacefs.client.control.supervised_queries import SupervisedQueries

    with SupervisedQueries(coordinator) as queries:
        _existing(queries.status(name))
        log = queries.log_of(name)
    if as_json:
        print_line(msgspec.json.encode(log).decode())
        return
    for line in log.text.splitlines():
        print_line(line)


def _print_report(report: DataflowReport) -> None:
    from rich.table import Table

    from peacefs.client.command_line.presentation import human_size
    from peacefs.client.command_line.whole_table import add_row, print_whole

    units = Table("unit", "reads", "on", "checkpoints", "last wrote", "in", "pause", "recoveries", "last took")
    for unit in report.units:
        add_row(
            units,
            *(
                unit.name,
                ", ".join(unit.reads),
                unit.node,
                str(unit.checkpoints),
                human_size(unit.checkpoint_bytes),
            ),
            *(f"{unit.stored_ms:.1f} ms", f"{unit.pause_ms:.2f} ms"),
            *(str(unit.recoveries), f"{unit.recovery_ms:.1f} ms" if unit.recoveries else ""),
        )
    ends = Table("", "name", "rows", "a second", "waits for room")
    for kind, found in (("source", report.sources), ("sink", report.sinks)):
        for end in found:
            waiting = f"{end.waiting:.0%}" if kind == "source" else ""
            add_row(ends, kind, end.name, str(end.rows), f"{end.rows_per_second:,.0f}", waiting)
    late = [f"{rows} late rows were left out by {operator}" for operator, rows in report.late_rows.items()]
    print_whole(units, ends, *late)


def _existing(status: QueryStatus) -> QueryStatus:
    """Return the status of a dataflow. Raises BadRequest for another supervised query."""
    from peacefs.protocol.errors import BadRequest

    if not _is_dataflow(status):
        raise BadRequest(f"query {status.name} is no dataflow: use `peacefs supervise` for it")
    return status


def _is_dataflow(status: QueryStatus) -> bool:
    from peacefs.protocol.values.supervised_queries import DATAFLOW

    return status.command[:1] == [DATAFLOW]
