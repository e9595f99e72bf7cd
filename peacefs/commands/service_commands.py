"""`peacefs coordinator` and `peacefs datanode`, declared: the options of the two services."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from peacefs.client.command_line.options import DEFAULT_COORDINATOR, Authentication, Coordinator, TrashMinutes
from peacefs.protocol.limits import (
    MIB,
    coordinator_http_port_default,
    coordinator_node_port_default,
    copy_bytes_per_second,
    datanode_data_port_default,
    datanode_http_port_default,
    keep_chunks_interval_s,
    read_token_lifetime_s,
    read_token_renewable_s,
    reserved_bytes_default,
    scrub_bytes_per_second,
    scrub_period_s,
    streams_per_node_default,
    unreferenced_chunk_kept_s,
)
from peacefs.service.log_style import LogFormat, LogLevel, LogStyle

from .service_options import (
    Advertise,
    AllowedHosts,
    Host,
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
    Traces,
    TraceShare,
    allowed_hosts,
    node_addresses,
    tls_files_of,
    trace_options,
)

unreferenced_kept_s_min: Final = 1.0
copy_bytes_per_second_min: Final = 4 * MIB
temporary_age_hours_min: Final = 1.0


_DAY_S = 86_400.0

_Directory = Annotated[Path, typer.Option("--dir", metavar="DIR", help="Data directory.")]


def _port(flag: str, what: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(flag, min=0, max=65535, help=f"{what}; 0 for a free one.")
    return option


coordinator = typer.Typer(
    invoke_without_command=True, rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=False
)


@coordinator.callback()
def run_coordinator(
    context: typer.Context,
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Data directory. [required]", show_default=False)
    ] = None,
    host: Host = "127.0.0.1",
    port: Annotated[int, _port("--port", "For WebHDFS and REST")] = coordinator_http_port_default,
    node_port: Annotated[int, _port("--node-port", "For datanodes")] = coordinator_node_port_default,
    hdfs_port: Annotated[
        int | None,
        typer.Option(
            "--hdfs-port",
            min=0,
            max=65535,
            help="Port for clients of HDFS (hdfs://), usually 8020; 0 for a free one. Not encrypted: beyond "
            "loopback "
            "it needs --no-tls. [default: none]",
            show_default=False,
        ),
    ] = None,
    advertise: Advertise = None,
    allowed_host: AllowedHosts = None,
    secret_file: SecretFile = None,
    permissions: Annotated[
        bool,
        typer.Option(
            "--permissions/--no-permissions",
            help="Check permissions as HDFS does. The superuser is the user who runs the coordinator.",
        ),
    ] = True,
    groups: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            metavar="GROUP=USER,...",
            help="Members of a group; repeat for each group. Members of supergroup are superusers.",
            show_default=False,
        ),
    ] = None,
    proxy_users: Annotated[
        Path | None,
        typer.Option(
            "--proxy-users",
            metavar="FILE",
            help="Rules for services that act for users (doas): hadoop.proxyuser.NAME.hosts, .groups and "
            ".users, in TOML. Reloaded on SIGHUP. [default: none]",
            show_default=False,
        ),
    ] = None,
    trash_minutes: TrashMinutes = 0,
    unreferenced_kept: Annotated[
        float,
        typer.Option(
            "--unreferenced-kept",
            metavar="SECONDS",
            min=unreferenced_kept_s_min,
            help="Delete chunks of no file after their writer has been silent for this long. Writers report "
            f"every {keep_chunks_interval_s:g} seconds; with less than four times that, slow writers lose "
            "files.",
        ),
    ] = unreferenced_chunk_kept_s,
    collect_temporary: Annotated[
        float | None,
        typer.Option(
            "--collect-temporary",
            metavar="HOURS",
            min=temporary_age_hours_min,
            help="Delete files called .NAME.<uuid>.tmp (Spark) and NAME._COPYING_ (Hadoop) that have not "
            "changed for this long, because their writers died. [default: never]",
            show_default=False,
        ),
    ] = None,
    topology_file: Annotated[
        Path | None,
        typer.Option(
            "--topology",
            metavar="FILE",
            envvar="PEACEFS_TOPOLOGY",
            help="Racks, links and disks: TOML if it ends in .toml, else Hadoop's rack table; it names servers"
            " by host, HOST:DATA-PORT or id. [default: the racks that datanodes state, and default rates]",
        ),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="Policy that decides where and when chunks are written: express, timely, paper, random or flow.",
        ),
    ] = "express",
    audit_log: Annotated[
        Path | None,
        typer.Option(
            "--audit-log",
            metavar="FILE",
            help="Write the audit log to this file: one line of JSON per request, with the field names of "
            "HDFS's audit log. Reopened on SIGHUP. [default: no audit log]",
            show_default=False,
        ),
    ] = None,
    streams_per_node: Annotated[
        int,
        typer.Option(
            "--streams-per-node",
            metavar="N",
            min=1,
            max=streams_per_node_default,
            help="Number of chunks that a datanode receives at the same time, unless a topology file describes"
            " its disk.",
        ),
    ] = streams_per_node_default,
    names_memory: Annotated[
        int,
        typer.Option(
            "--names-memory",
            metavar="MIB",
            min=16,
            help="Maximum memory for names. Other names are read from the disk when they are needed.",
        ),
    ] = 1024,
    recheck_reads: Annotated[
        float,
        typer.Option(
            "--recheck-reads",
            metavar="SECONDS",
            min=0.5,
            max=read_token_renewable_s,
            help="Maximum time for which a reader of an open file may continue after losing its rights.",
        ),
    ] = read_token_lifetime_s,
    access_time_precision: Annotated[
        float,
        typer.Option(
            "--access-time-precision",
            metavar="SECONDS",
            min=0,
            help="A read updates a file's access time if that is older than this (HDFS: 3600); 0 for never.",
        ),
    ] = 0.0,
    authentication: Authentication = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    no_tls: NoTls = False,
    journal: Annotated[
        str | None,
        typer.Option(
            "--journal",
            metavar="ADDRESS",
            envvar="PEACEFS_JOURNAL",
            help="The members of etcd that keep the journal for standbys: etcd://a:2379,b:2379,c:2379/prefix, "
            "or etcds:// for TLS. One coordinator leads, the others follow. [default: no journal]",
            show_default=False,
        ),
    ] = None,
    journal_ca: Annotated[
        Path | None,
        typer.Option("--journal-ca", metavar="FILE", help="The CA of etcd's certificates, in PEM."),
    ] = None,
    journal_certificate: Annotated[
        Path | None,
        typer.Option("--journal-certificate", metavar="FILE", help="Client certificate for etcd."),
    ] = None,
    journal_key: Annotated[
        Path | None, typer.Option("--journal-key", metavar="FILE", help="Key of the client certificate.")
    ] = None,
    journal_login: Annotated[
        Path | None,
        typer.Option("--journal-login", metavar="FILE", help="File with one line for etcd, USER:PASSWORD."),
    ] = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
    traces: Traces = None,
    trace_share: TraceShare = 1.0,
    ready_fd: ReadyDescriptor = None,
    parent_fd: ParentDescriptor = None,
) -> None:
    """Run the coordinator: names, chunks, datanodes, repair.

    Exit status: 70 a background task failed, 74 the metadata could not be read or written, 75 another coordinator
    leads and this one should be restarted. The log has the reason.
    """
    if context.invoked_subcommand is not None:
        return
    if directory is None:
        raise typer.BadParameter("it must be given", param_hint="--dir")
    from peacefs.coordinator.journal.address import JournalOptions
    from peacefs.coordinator.options import CoordinatorOptions
    from peacefs.coordinator.process import run

    run(
        CoordinatorOptions(
            directory=directory,
            host=host,
            port=port,
            node_port=node_port,
            hdfs_port=hdfs_port,
            advertise=advertise,
            allowed_hosts=allowed_hosts(allowed_host),
            secret_file=secret_file,
            tls=tls_files_of(tls_certificate, tls_key, tls_ca),
            no_tls=no_tls,
            log=LogStyle(log_format, log_level),
            traces=trace_options(traces, trace_share),
            ready_fd=ready_fd,
            parent_fd=parent_fd,
            check_permissions=permissions,
            trash_minutes=trash_minutes,
            audit_log=audit_log,
            collect_temporary_hours=collect_temporary,
            unreferenced_kept_s=unreferenced_kept,
            proxy_users=proxy_users,
            groups=dict(_group(text) for text in groups or ()),
            topology=topology_file,
            policy=policy,
            streams_per_node=streams_per_node,
            names_memory_bytes=names_memory * 1024 * 1024,
            read_token_lifetime_s=recheck_reads,
            access_time_precision_s=access_time_precision,
            authentication=authentication,
            journal=None
            if journal is None
            else JournalOptions(journal, journal_ca, journal_certificate, journal_key, journal_login),
            look_at_checkpoints=(sys.executable, "-P", "-m", "peacefs.spark_connector.checkpoints.look_process"),
        )
    )


@coordinator.command("hand-over")
def hand_over(coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Make a standby lead instead.

    The coordinator that led ends and should be restarted. In an upgrade, upgrade the standbys, hand over, then
    upgrade the former leader.
    """
    import msgspec

    from peacefs.client.control.addresses import parse_address
    from peacefs.client.control.api import current_user
    from peacefs.client.control.http import CoordinatorHttp

    http = CoordinatorHttp(parse_address(coordinator))
    try:
        answer = http.ask("POST", "/v1/coordinator/hand-over", params={"user": current_user()})
    finally:
        http.close()
    sys.stderr.write(f"{msgspec.json.decode(answer)['leader']} leads now\n")


def _group(text: str) -> tuple[str, list[str]]:
    name, equals, users = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{text!r} is not GROUP=USER,...", param_hint="--group")
    return name, [user for user in users.split(",") if user]


def datanode(
    directory: _Directory,
    coordinator: NodePort = f"127.0.0.1:{coordinator_node_port_default}",
    host: Host = "127.0.0.1",
    port: Annotated[int, _port("--port", "For WebHDFS")] = datanode_http_port_default,
    data_port: Annotated[int, _port("--data-port", "For data")] = datanode_data_port_default,
    hdfs_port: Annotated[
        int | None,
        typer.Option(
            "--hdfs-port",
            min=0,
            max=65535,
            metavar="PORT",
            help="Port for clients of HDFS (hdfs://); 0 for a free one. [default: none]",
            show_default=False,
        ),
    ] = None,
    advertise: Advertise = None,
    allowed_host: AllowedHosts = None,
    rack: Annotated[str, typer.Option("--rack", metavar="PATH", help="Rack of this node.")] = "/default-rack",
    reserved_bytes: Annotated[
        int, typer.Option("--reserved-bytes", min=0, help="Space that is kept free on each disk.")
    ] = reserved_bytes_default,
    scrub_days: Annotated[
        float,
        typer.Option(
            "--scrub-days",
            min=0,
            envvar="PEACEFS_SCRUB_DAYS",
            help="Verify every replica once in this many days, if the rate allows it; 0 for never.",
        ),
    ] = scrub_period_s / _DAY_S,
    scrub_rate: Annotated[
        int,
        typer.Option(
            "--scrub-rate",
            min=1,
            envvar="PEACEFS_SCRUB_RATE",
            help="Maximum bytes per second to read for verification.",
        ),
    ] = scrub_bytes_per_second,
    copy_rate: Annotated[
        int,
        typer.Option(
            "--copy-rate",
            min=copy_bytes_per_second_min,
            envvar="PEACEFS_COPY_RATE",
            help="Maximum bytes per second to send as copies for repair.",
        ),
    ] = copy_bytes_per_second,
    write_around_cache: Annotated[
        bool | None,
        typer.Option(
            "--write-around-cache/--write-through-cache",
            envvar="PEACEFS_WRITE_AROUND_CACHE",
            help="Write all large chunks with O_DIRECT, or none. By default each disk uses the way that is "
            "faster.",
            show_default=False,
        ),
    ] = None,
    secret_file: SecretFile = None,
    data_directories: Annotated[
        list[Path] | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help="Directory for chunks; repeat for each disk. [default: in --dir]",
        ),
    ] = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    no_tls: NoTls = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
    traces: Traces = None,
    trace_share: TraceShare = 1.0,
    ready_fd: ReadyDescriptor = None,
    parent_fd: ParentDescriptor = None,
) -> None:
    """Run a datanode: chunks on one or more disks."""
    from peacefs.datanode.options import DatanodeOptions
    from peacefs.datanode.process import run

    first, *others = node_addresses(coordinator)
    run(
        DatanodeOptions(
            directory=directory,
            coordinator=first,
            more_coordinators=tuple(others),
            host=host,
            http_port=port,
            data_port=data_port,
            hdfs_port=hdfs_port,
            advertise=advertise,
            allowed_hosts=allowed_hosts(allowed_host),
            rack=rack,
            secret_file=secret_file,
            reserved_bytes=reserved_bytes,
            scrub_period_s=scrub_days * _DAY_S,
            scrub_bytes_per_second=scrub_rate,
            copy_bytes_per_second=copy_rate,
            write_around_cache=write_around_cache,
            data_directories=tuple(data_directories or ()),
            tls=tls_files_of(tls_certificate, tls_key, tls_ca),
            no_tls=no_tls,
            log=LogStyle(log_format, log_level),
            traces=trace_options(traces, trace_share),
            ready_fd=ready_fd,
            parent_fd=parent_fd,
        )
    )
