"""Declares the commands for a whole cluster: run one here, inspect it, balance it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from peacefs.client.limits import local_datanodes_default
from peacefs.protocol.limits import (
    balance_bytes_per_second_default,
    balance_bytes_per_second_min,
    balance_threshold_percent_default,
    coordinator_http_port_default,
    coordinator_node_port_default,
    maintenance_hours_max,
)

from .options import DEFAULT_COORDINATOR, Authentication, Coordinator, TrashMinutes, open_session

# Default time for which a datanode in maintenance may be away before its replicas are copied.
maintenance_hours_default: Final = 4.0
# Default time for which a temporary file must be unchanged before `fsck --temporary` lists it.
temporary_age_hours_default: Final = 24.0


datanodes = typer.Typer(
    help="Show datanodes, take them out of service, and put them back.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
chunks = typer.Typer(help="Explain a chunk.", no_args_is_help=True, rich_markup_mode=None)
_Datanodes = Annotated[
    list[str],
    typer.Argument(
        metavar="DATANODE", show_default=False, help="An id, its beginning, or HOST:PORT as `ls` shows them."
    ),
]
_AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]


def up(
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Data directory of the cluster. [default: peacefs/cluster in XDG data]",
        ),
    ] = None,
    datanodes: Annotated[
        int | None,
        typer.Option(
            "--datanodes",
            metavar="N",
            help=f"Number of datanodes. [default: as many as DIR has; {local_datanodes_default} in a new one]",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The coordinator's HTTP port; 0 for a free one.")
    ] = coordinator_http_port_default,
    datanode_port: Annotated[
        int,
        typer.Option(
            "--datanode-port",
            min=0,
            max=65535,
            help="The first of the datanodes' ports, two each; 0 for free ones.",
        ),
    ] = 0,
    node_port: Annotated[
        int | None,
        typer.Option(
            "--node-port",
            min=0,
            max=65535,
            help="The coordinator's port for agents and datanodes; 0 for a free one. [default: that of the "
            f"previous run; in a new DIR {coordinator_node_port_default}, or with --port 0 a free one]",
            show_default=False,
        ),
    ] = None,
    trash_minutes: TrashMinutes = 0,
    authentication: Authentication = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Encrypt all connections, with certificates that are made in DIR.")
    ] = False,
    standby: Annotated[
        bool,
        typer.Option("--standby", help="Run two coordinators, one as a standby, and the etcd that they need."),
    ] = False,
) -> None:
    """Run a whole cluster on this machine.

    Prints the URI to give to Spark, and runs until Ctrl-C. Services that die are restarted.
    """
    from peacefs.client.local_cluster.cluster import LocalCluster

    from .cluster import default_directory, run_until_stopped

    options = [f"--trash-minutes={trash_minutes}"]
    if authentication is not None:
        options.append(f"--authentication={authentication}")
    where = directory or default_directory()
    cluster = LocalCluster(
        where, datanodes, port, datanode_port, options, tls=tls, node_port=node_port, standby=standby
    )
    run_until_stopped(cluster)


def fsck(
    path: Annotated[str, typer.Argument(metavar="[PATH]", show_default=False)] = "/",
    every_file: Annotated[bool, typer.Option("--files", help="Show healthy files, too.")] = False,
    only_corrupt: Annotated[
        bool, typer.Option("--list-corrupt", help="Show only chunks that are missing or have a corrupt replica.")
    ] = False,
    temporary: Annotated[
        bool,
        typer.Option("--temporary", help="List only temporary files that writers have left behind."),
    ] = False,
    older_than: Annotated[
        float,
        typer.Option(
            "--older-than", metavar="HOURS", min=0, help="With --temporary: only files unchanged for this long."
        ),
    ] = temporary_age_hours_default,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line, the summary last.")
    ] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Check the replicas of every file.

    Exit status: 0 healthy, 1 error, 2 wrong usage, 3 replicas missing, in excess or all on one rack, 4 corrupt
    replicas of chunks that can still be read, 5 data that cannot be read.
    """
    from .fsck import FsckStyle, check
    from .temporary import list_temporary

    if temporary:
        if every_file or only_corrupt:
            raise typer.BadParameter(
                "it can be combined only with --older-than and --json", param_hint="--temporary"
            )
        with open_session("fsck", coordinator) as session, session.errors.about(path):
            list_temporary(session, path, older_than, as_json=as_json)
        return
    with open_session("fsck", coordinator) as session, session.errors.about(path):
        raise typer.Exit(check(session, path, FsckStyle(every_file, only_corrupt, as_json)))


def report(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Show the cluster and its datanodes."""
    from .report import report

    report(coordinator, as_json=as_json)


def schedule(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat every second, until Ctrl-C.")] = False,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="Use this policy until the coordinator restarts: express, timely, paper, random or flow.",
            show_default=False,
        ),
    ] = None,
    recurrences: Annotated[
        bool, typer.Option("--recurrences", help="Show recurring writes and their periods instead.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Show waiting and running writes of chunks.

    Shows where each chunk is written, and for how long it has waited or run.
    """
    from .schedule import ScheduleStyle, show_schedule

    show_schedule(coordinator, ScheduleStyle(watch, as_json, policy, recurrences))


def balance(
    threshold: Annotated[
        float,
        typer.Option(
            "--threshold",
            metavar="PERCENT",
            min=0,
            max=100,
            help="Allowed difference between the use of a datanode (or, with --disks, a disk) and the mean use.",
        ),
    ] = balance_threshold_percent_default,
    rate: Annotated[
        int,
        typer.Option(
            "--rate",
            metavar="BYTES",
            min=balance_bytes_per_second_min,
            help="Maximum rate at which each datanode sends, receives or (with --disks) moves data.",
        ),
    ] = balance_bytes_per_second_default,
    disks: Annotated[
        bool, typer.Option("--disks", help="Balance the disks of each datanode, as `hdfs diskbalancer`.")
    ] = False,
    nodes: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="NODE", help="With --disks: balance only this datanode; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as a JSON object.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Move replicas from fuller datanodes to emptier ones.

    Runs until all are within the threshold, nothing more can be moved, or Ctrl-C. Exit status as of
    `hdfs balancer`: 0 balanced, 255 another run is under way, 254 nothing can be moved, 253 moves fail, 250
    interrupted.
    """
    from .balance import BalanceStyle, balance

    style = BalanceStyle(threshold, rate, as_json)
    if nodes and not disks:
        raise typer.BadParameter("--node needs --disks: without it all datanodes take part")
    if disks:
        from .disk_balance import balance_disks

        raise typer.Exit(balance_disks(coordinator, nodes or (), style))
    raise typer.Exit(balance(coordinator, style))


@chunks.command()
def explain(
    chunk: Annotated[
        str, typer.Argument(metavar="ID", show_default=False, help="Chunk id, such as 1-2a, as fsck shows it.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Explain the state of a chunk.

    Shows the files that use it, the state of each replica and the event that led to it, pending work, and recent
    events.
    """
    from .chunks import explain_chunk

    explain_chunk(coordinator, chunk, as_json=as_json)


@datanodes.command("ls")
def list_datanodes(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """List datanodes and their admin state.

    For a decommissioning datanode, also shows how much must still be copied.
    """
    from .datanodes import list_datanodes

    list_datanodes(coordinator, as_json=as_json)


@datanodes.command()
def decommission(names: _Datanodes, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Copy datanodes' replicas elsewhere and retire them.

    They receive no new replicas. Returns at once. When `ls` shows a datanode as decommissioned, it can be switched
    off for good.
    """
    from .datanodes import DatanodeCommand, decide

    decide(coordinator, names, DatanodeCommand.DECOMMISSION)


@datanodes.command()
def recommission(names: _Datanodes, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Take datanodes back into service."""
    from .datanodes import DatanodeCommand, decide

    decide(coordinator, names, DatanodeCommand.RECOMMISSION)


@datanodes.command()
def credentials(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Show the credential of each datanode id."""
    from .credentials import list_credentials

    list_credentials(coordinator, as_json=as_json)


@datanodes.command()
def revoke(names: _Datanodes, as_json: _AsJson = False, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Revoke datanodes; their replicas count as lost.

    Their sessions end, and they are refused until `readmit` or `forget`. A compromised machine still knows the
    cluster secret: replace that, too.
    """
    from .credentials import Change, change

    change(coordinator, names, Change.REVOKE, as_json=as_json)


@datanodes.command()
def readmit(names: _Datanodes, as_json: _AsJson = False, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Accept revoked datanodes again.

    They must use the same credentials as before.
    """
    from .credentials import Change, change

    change(coordinator, names, Change.READMIT, as_json=as_json)


@datanodes.command()
def forget(names: _Datanodes, as_json: _AsJson = False, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Forget the credentials of datanode ids.

    Each id accepts the next credential that it is used with. For a datanode that lost its credential.key, or that
    is gone for good.
    """
    from .credentials import Change, change

    change(coordinator, names, Change.FORGET, as_json=as_json)


@datanodes.command()
def maintenance(
    names: _Datanodes,
    hours: Annotated[
        float,
        typer.Option(
            "--hours",
            min=0,
            max=maintenance_hours_max,
            help="Time for which the replicas of these datanodes are not copied.",
        ),
    ] = maintenance_hours_default,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Let datanodes be away without copying their replicas.

    Returns at once. When `ls` shows a datanode as in maintenance, it can be switched off. `recommission` ends the
    maintenance.
    """
    from .datanodes import DatanodeCommand, decide

    decide(coordinator, names, DatanodeCommand.MAINTENANCE, hours)
