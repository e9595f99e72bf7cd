"""`peacefs agent`, which runs queries on a node, and `peacefs supervise`, which has them kept going."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from peacefs.client.command_line.options import DEFAULT_COORDINATOR, Coordinator
from peacefs.protocol.limits import (
    coordinator_node_port_default,
    supervised_restarts_default,
)
from peacefs.service.log_style import LogFormat, LogLevel, LogStyle

from .service_options import (
    LogFormatOption,
    LogLevelOption,
    NodePort,
    NoTls,
    ParentDescriptor,
    ReadyDescriptor,
    SecretFile,
    TlsCa,
    TlsCertificate,
    TlsKey,
    node_addresses,
    tls_files_of,
)
from .supervision_options import OnAgents, Restarts

if TYPE_CHECKING:
    from peacefs.protocol.values.supervised_queries import QueryStatus, Supervised


def agent(
    directory: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Directory for the logs of runs.")],
    commands: Annotated[
        Path,
        typer.Option(
            "--commands",
            metavar="FILE",
            help="File with the commands that the agent may start, in TOML; it never runs anything else.",
        ),
    ],
    coordinator: NodePort = f"127.0.0.1:{coordinator_node_port_default}",
    name: Annotated[str | None, typer.Option("--name", help="Name of the agent. [default: --host]")] = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            help="Address of this node's datanode, if there is one; tells which data is near. [default: the "
            "host's name]",
        ),
    ] = None,
    rack: Annotated[
        str,
        typer.Option(
            "--rack", metavar="PATH", help="Rack of this node. [default: that of the datanode of --host]"
        ),
    ] = "",
    secret_file: SecretFile = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    no_tls: NoTls = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
    ready_fd: ReadyDescriptor = None,
    parent_fd: ParentDescriptor = None,
) -> None:
    """Run an agent, which starts supervised queries here.

    Queries are started by commands from a list.

    What it runs ends with it, and when the coordinator has not answered for a while.
    """
    from peacefs.spark_connector.supervision.agent import AgentOptions, run

    first, *others = node_addresses(coordinator)
    run(
        AgentOptions(
            directory=directory,
            commands=commands,
            coordinator=first,
            more_coordinators=tuple(others),
            name=name,
            host=host,
            rack=rack,
            secret_file=secret_file,
            tls=tls_files_of(tls_certificate, tls_key, tls_ca),
            no_tls=no_tls,
            log=LogStyle(log_format, log_level),
            ready_fd=ready_fd,
            parent_fd=parent_fd,
        )
    )


def supervise(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND [ARGUMENT]...",
            help="Command name from the agents' lists, and its arguments.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name of the query. [default: the checkpoint's, or the command's]"),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="PATH",
            help="Checkpoint root of the query. Each start is its only writer, and gets its location as "
            "{checkpoint} and PEACEFS_CHECKPOINT.",
        ),
    ] = None,
    on: OnAgents = None,
    restarts: Restarts = supervised_restarts_default,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby",
            help="Keep a second driver ready, which has a session and waits in begin_run to take over.",
        ),
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="List queries and agents.")] = False,
    stop: Annotated[str | None, typer.Option("--stop", metavar="NAME", help="Stop a query.")] = None,
    forget: Annotated[
        str | None, typer.Option("--forget", metavar="NAME", help="Forget a query that is over.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON to stdout.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Keep a query running with the help of agents.

    An agent starts the query. If the query or its node dies, an agent near its checkpoint starts it again.

    Only one run at a time can write to the checkpoint. A query that ends with exit status 0 is not restarted.
    """
    from peacefs.client.control.supervised_queries import SupervisedQueries
    from peacefs.spark_connector.supervision.registration import supervise as register

    if sum([bool(command), list_, stop is not None, forget is not None]) != 1:
        raise typer.BadParameter("say -- and a command, or one of --list, --stop and --forget")
    if command:
        show_status(
            register(
                command,
                coordinator=coordinator,
                name=name,
                checkpoint=checkpoint,
                on=on or (),
                restarts_max=restarts,
                standby=standby,
            ),
            as_json=as_json,
        )
        return
    with SupervisedQueries(coordinator) as queries:
        if list_:
            _list(queries.all(), as_json=as_json)
        elif stop is not None:
            show_status(queries.stop(stop), as_json=as_json)
        elif forget is not None:
            queries.forget(forget)


def show_status(status: QueryStatus, *, as_json: bool) -> None:
    import msgspec

    from peacefs.client.command_line.listing import print_line

    where = f" on {status.agent}" if status.agent else ""
    why = f": {status.reason}" if status.reason else ""
    text = (
        msgspec.json.encode(status).decode() if as_json else f"query {status.name} is {status.phase}{where}{why}"
    )
    print_line(text)


def _list(supervised: Supervised, *, as_json: bool) -> None:
    import msgspec

    from peacefs.client.command_line.listing import print_line

    if as_json:
        print_line(msgspec.json.encode(supervised).decode())
        return
    from rich.table import Table

    from peacefs.client.command_line.whole_table import add_row, print_whole

    queries = Table("query", "is", "on", "standby", "checkpoint", "run", "failed", "because")
    for query in supervised.queries:
        failed = f"{query.restarts} of {query.restarts_max}"
        standby = f"{query.standby} on {query.standby_agent}" if query.standby_agent else query.standby
        add_row(
            queries,
            *(query.name, query.phase, query.agent, standby, query.checkpoint, query.run, failed, query.reason),
        )
    agents = Table("agent", "host", "rack", "may start", "runs", "heard")
    for each in supervised.agents:
        runs = f"{each.runs} of {each.runs_max}"
        heard = f"{each.heard_s_ago:.1f} s ago"
        add_row(agents, each.name, each.host, each.rack, ", ".join(each.commands), runs, heard)
    print_whole(queries, agents if supervised.agents else "no agent is alive: nothing can be started")
