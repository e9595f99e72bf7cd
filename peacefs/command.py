"""The command `peacefs`: what clients need (`client.command_line`) and what starts services.

The one module that may import every package; it does so only in the command that needs it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from peacefs.checkpoint_commands import checkpoint
from peacefs.client.addresses import DEFAULT_ADDRESS
from peacefs.client.command_line.application import application
from peacefs.client.command_line.options import Coordinator
from peacefs.client.command_line.complaints import complain
from peacefs.metadata_commands import metadata
from peacefs.spark_commands import spark
from peacefs.supervision_commands import agent, node_address, supervise
from peacefs.protocol.limits import (
    calibration_s,
    coordinator_http_port_default,
    coordinator_node_port_default,
    streams_per_node_default,
    copy_bytes_per_second,
    copy_bytes_per_second_min,
    datanode_data_port_default,
    datanode_http_port_default,
    plan_chunks_max,
    replication_default,
    replication_max,
    reserved_bytes_default,
    scrub_bytes_per_second,
    scrub_period_s,
    temporary_age_hours_min,
    trash_minutes_max,
    simulated_seeds_max,
)

_DAY_S = 86_400.0

Directory = Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where it keeps everything.")]
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


def _port(flag: str, what: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(flag, min=0, max=65535, help=f"{what}; 0 for a free one.")
    return option


@application.command()
def coordinator(
    directory: Directory,
    host: Host = "127.0.0.1",
    port: Annotated[int, _port("--port", "For WebHDFS and REST")] = coordinator_http_port_default,
    node_port: Annotated[int, _port("--node-port", "For datanodes")] = coordinator_node_port_default,
    advertise: Advertise = None,
    secret_file: SecretFile = None,
    permissions: Annotated[
        bool,
        typer.Option(
            "--permissions/--no-permissions",
            help="Refuse users what HDFS would. The superuser is who runs the coordinator.",
        ),
    ] = True,
    groups: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            metavar="GROUP=USER,...",
            help="Who is in a group, once for each; those in supergroup are superusers.",
            show_default=False,
        ),
    ] = None,
    trash_minutes: Annotated[
        int,
        typer.Option(
            "--trash-minutes",
            metavar="N",
            min=0,
            max=trash_minutes_max,
            help="How long what `peacefs rm` removes stays in its user's trash, at least; 0 for no trash.",
        ),
    ] = 0,
    collect_temporary: Annotated[
        float | None,
        typer.Option(
            "--collect-temporary",
            metavar="HOURS",
            min=temporary_age_hours_min,
            help="Delete files called .NAME.<uuid>.tmp (Spark) and NAME._COPYING_ (Hadoop) that have not changed for so "
            "long: their writers died. [default: never]",
            show_default=False,
        ),
    ] = None,
    topology_file: Annotated[
        Path | None,
        typer.Option(
            "--topology",
            metavar="FILE",
            envvar="PEACEFS_TOPOLOGY",
            help="Racks, links and disks: TOML if it ends in .toml, else Hadoop's rack table; servers are named by "
            "host, HOST:DATA-PORT or id. [default: racks as datanodes say, and default rates]",
        ),
    ] = None,
    policy: Annotated[
        str,
        typer.Option("--policy", metavar="NAME", help="Who decides where and when: express, paper, random or flow."),
    ] = "express",
    streams_per_node: Annotated[
        int,
        typer.Option(
            "--streams-per-node",
            metavar="N",
            min=1,
            max=streams_per_node_default,
            help="Chunks that a datanode receives at once, where no topology file says what its disk can.",
        ),
    ] = streams_per_node_default,
    ready_fd: ReadyDescriptor = None,
    parent_fd: ParentDescriptor = None,
) -> None:
    """Run the coordinator: names, chunks, datanodes, repair."""
    from peacefs.coordinator.service import CoordinatorOptions, run

    run(
        CoordinatorOptions(
            directory=directory,
            host=host,
            port=port,
            node_port=node_port,
            advertise=advertise,
            secret_file=secret_file,
            ready_fd=ready_fd,
            parent_fd=parent_fd,
            check_permissions=permissions,
            trash_minutes=trash_minutes,
            collect_temporary_hours=collect_temporary,
            groups=dict(_group(text) for text in groups or ()),
            topology=topology_file,
            policy=policy,
            streams_per_node=streams_per_node,
            look_at_checkpoints=(sys.executable, "-P", "-m", "peacefs.spark_connector.checkpoints.look_process"),
        )
    )


def _group(text: str) -> tuple[str, list[str]]:
    name, equals, users = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{text!r} is not GROUP=USER,...", param_hint="--group")
    return name, [user for user in users.split(",") if user]


@application.command()
def datanode(
    directory: Directory,
    coordinator: Annotated[
        str, typer.Option("--coordinator", metavar="HOST:PORT", help="The coordinator's port for datanodes.")
    ] = f"127.0.0.1:{coordinator_node_port_default}",
    host: Host = "127.0.0.1",
    port: Annotated[int, _port("--port", "For WebHDFS")] = datanode_http_port_default,
    data_port: Annotated[int, _port("--data-port", "For data")] = datanode_data_port_default,
    advertise: Advertise = None,
    rack: Annotated[str, typer.Option("--rack", metavar="PATH", help="Where it stands.")] = "/default-rack",
    reserved_bytes: Annotated[
        int, typer.Option("--reserved-bytes", min=0, help="What the disk keeps free for others.")
    ] = reserved_bytes_default,
    scrub_days: Annotated[
        float,
        typer.Option(
            "--scrub-days",
            min=0,
            envvar="PEACEFS_SCRUB_DAYS",
            help="Every replica is read and verified once in that many days, if the rate allows it; 0 for never.",
        ),
    ] = scrub_period_s / _DAY_S,
    scrub_rate: Annotated[
        int,
        typer.Option(
            "--scrub-rate", min=1, envvar="PEACEFS_SCRUB_RATE", help="Bytes a second that it may read for that."
        ),
    ] = scrub_bytes_per_second,
    copy_rate: Annotated[
        int,
        typer.Option(
            "--copy-rate",
            min=copy_bytes_per_second_min,
            envvar="PEACEFS_COPY_RATE",
            help="Bytes a second that it may send as copies for repair.",
        ),
    ] = copy_bytes_per_second,
    secret_file: SecretFile = None,
    data_directories: Annotated[
        list[Path] | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help="Where chunks are, one for each disk; may be repeated. [default: in --dir, beside the identity]",
        ),
    ] = None,
    emulate_disk: Annotated[
        str | None,
        typer.Option(
            "--emulate-disk",
            metavar="N=RATE,...",
            help="For experiments only: take chunks in no faster than so many bytes a second, when N come in at once.",
        ),
    ] = None,
    ready_fd: ReadyDescriptor = None,
    parent_fd: ParentDescriptor = None,
) -> None:
    """Run a datanode: chunks on one or more disks."""
    from peacefs.datanode.emulated_disk import parse_curve
    from peacefs.datanode.service import DatanodeOptions, run

    run(
        DatanodeOptions(
            directory=directory,
            coordinator=node_address(coordinator),
            host=host,
            http_port=port,
            data_port=data_port,
            advertise=advertise,
            rack=rack,
            secret_file=secret_file,
            reserved_bytes=reserved_bytes,
            scrub_period_s=scrub_days * _DAY_S,
            scrub_bytes_per_second=scrub_rate,
            copy_bytes_per_second=copy_rate,
            data_directories=tuple(data_directories or ()),
            emulated_disk=None if emulate_disk is None else parse_curve(emulate_disk),
            ready_fd=ready_fd,
            parent_fd=parent_fd,
        )
    )


application.add_typer(metadata, name="metadata")
application.add_typer(checkpoint, name="checkpoint")
application.add_typer(spark, name="spark")
application.command()(agent)
application.command()(supervise)


@application.command()
def demo(
    log: Annotated[
        Path | None, typer.Option("--input", metavar="FILE", help="An sshd log. [default: the demo's own]")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Where it works. [default: a temporary directory]")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything there afterwards.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Only the report, as JSON, on stdout.")] = False,
) -> None:
    """See a Spark query survive what it should."""
    from peacefs.spark_connector.demo import DemoOptions, run_demo

    raise typer.Exit(run_demo(DemoOptions(input=log, directory=directory, keep=keep, json=as_json)))


@application.command()
def simulate(
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO",
            show_default=False,
            help="figure10, staggered, slow-node, mixed, large or nic-bound.",
        ),
    ],
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", min=1, max=simulated_seeds_max, help="How many runs to average.")
    ] = 20,
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="POLICY",
            help="random, paper, paper-3, paper-5, flow or express; may be repeated. [default: the scenario's own]",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Only the rows, as JSON, on stdout.")] = False,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", metavar="FILE", help="Draw time against writers: .png, .svg or .pdf."),
    ] = None,
) -> None:
    """Compare placement policies in a simulated cluster.

    from request is from when a set is asked for until it is written, span from its first grant; both are means
    over all sets. The bounds are what no policy can beat.
    """
    from .simulate_command import SimulateOptions, run_simulate

    run_simulate(SimulateOptions(scenario, seeds, policies or (), as_json, picture))


@application.command()
def plan(
    writers: Annotated[
        list[str] | None,
        typer.Option(
            "--writer", metavar="SERVER", help="Who writes; may be repeated. [default: one outside the cluster]"
        ),
    ] = None,
    replication: Annotated[
        int, typer.Option("--replication", min=1, max=replication_max, help="Replicas of each chunk.")
    ] = replication_default,
    chunks: Annotated[
        int, typer.Option("--chunks", metavar="N", min=1, max=plan_chunks_max, help="Of each writer, 64 MiB each.")
    ] = 1,
    policy: Annotated[
        str, typer.Option("--policy", help="random, paper, paper-3, paper-5, flow or express.")
    ] = "express",
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same plan.")] = 0,
    topology: Annotated[
        Path | None,
        typer.Option(
            "--topology",
            metavar="FILE",
            help="Plan for this network, without a coordinator: TOML, or Hadoop's rack table.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The plan as JSON.")] = False,
    coordinator: Coordinator = DEFAULT_ADDRESS.http,
) -> None:
    """Show where a policy would put chunks, and when.

    A dry run: nothing is reserved, and the cluster is taken for idle.
    """
    from .plan_command import PlanOptions, run_plan

    run_plan(PlanOptions(policy, seed, writers or (), replication, chunks, topology, coordinator, as_json))


topology = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Look at networks and their descriptions.")
application.add_typer(topology, name="topology")

TopologyFile = Annotated[
    Path,
    typer.Argument(metavar="FILE", show_default=False, help="TOML if it ends in .toml, else Hadoop's rack table."),
]


@topology.command("check")
def topology_check(file: TopologyFile) -> None:
    """Say what a file describes, or the line of its first mistake."""
    from .topology_command import check

    check(file)


@topology.command("show")
def topology_show(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="As for check. [default: the network of a running cluster]"),
    ] = None,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="OUT", help="Write a picture.")] = None,
    dot: Annotated[
        Path | None, typer.Option("--dot", metavar="OUT", help="Write the graph of capacities for Graphviz.")
    ] = None,
    graphml: Annotated[
        Path | None, typer.Option("--graphml", metavar="OUT", help="Write the graph of capacities as GraphML.")
    ] = None,
    coordinator: Coordinator = DEFAULT_ADDRESS.http,
) -> None:
    """Draw a network as a tree, with the rates of its links.

    That of a running cluster, without FILE, comes with the chunks that are on their way over each link now, beside
    how many it carries.
    """
    from .topology_command import show

    show(file, coordinator, svg=svg, dot=dot, graphml=graphml)


@topology.command("calibrate")
def topology_calibrate(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", show_default=False, help="A description in TOML, or where to put one.")
    ],
    coordinator: Coordinator = DEFAULT_ADDRESS.http,
    seconds: Annotated[
        float,
        typer.Option("--seconds", metavar="S", min=0.1, max=60, help="How long each measurement lasts."),
    ] = calibration_s,
) -> None:
    """Measure disks and links of the running cluster, and write what they carry into FILE.

    Each datanode's disk with 1, 2, 4 and 8 streams, and each link between racks. Best when little else goes on, and
    from a machine whose network card is no slower than the disks. What is written for it is deleted at once. Of
    comments in FILE the one at its head stays.
    """
    from .calibrate_command import calibrate

    calibrate(file, coordinator, seconds)


@topology.command("reload")
def topology_reload(coordinator: Coordinator = DEFAULT_ADDRESS.http) -> None:
    """Have the coordinator read its topology file again.

    When there is a mistake in it, it is named and nothing changes.
    """
    from .topology_command import reload

    reload(coordinator)


def main() -> None:
    """The entry point. Exit status 0, 1 for faults, 2 for wrong usage, 130 after Ctrl-C."""
    try:
        application(prog_name="peacefs")
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        complain("", f"{where}{error.strerror or error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
