"""Declarations of `peacefs simulate`, `plan` and `topology`; the modules `*_command` do the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from peacefs.client.command_line.options import DEFAULT_COORDINATOR, Coordinator
from peacefs.protocol.limits import pipeline_hops_max, plan_chunks_max, replication_default

calibration_s: Final = 2.0
simulated_seeds_max: Final = 10_000


topology = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Check, draw and measure networks.")

_TopologyFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        show_default=False,
        help="Description of a network: TOML if the name ends in .toml, else Hadoop's rack table.",
    ),
]


def simulate(
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO",
            show_default=False,
            help="figure10, staggered, slow-node, mixed, large, nic-bound or periodic.",
        ),
    ],
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            metavar="N",
            min=1,
            max=simulated_seeds_max,
            help="Number of runs to average. [default: 20; of periodic 2]",
        ),
    ] = None,
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="POLICY",
            help="random, paper, paper-3, paper-5, flow, express or timely; of periodic also sinbad, sincronia, "
            "deadline or reserving; may be repeated. [default: the scenario's own]",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the rows, as JSON, to stdout.")] = False,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", metavar="FILE", help="Write a picture: .png, .svg or .pdf."),
    ] = None,
) -> None:
    """Simulate placement policies.

    "From request" is the time from the request of a set until it is written, "span" the time from its first grant;
    both are means over all sets. No policy can beat the bounds. "periodic" shows, under several loads, how many
    times as long as alone in the cluster periodic checkpoints take.
    """
    if scenario == "periodic":
        from .periodic_command import run_periodic_command

        run_periodic_command(seeds, policies or (), picture, as_json=as_json)
        return
    from .simulate_command import SimulateOptions, run_simulate

    run_simulate(SimulateOptions(scenario, seeds, policies or (), as_json, picture))


def plan(
    writers: Annotated[
        list[str] | None,
        typer.Option(
            "--writer", metavar="SERVER", help="A writer; may be repeated. [default: one outside the cluster]"
        ),
    ] = None,
    replication: Annotated[
        int, typer.Option("--replication", min=1, max=pipeline_hops_max, help="Replicas of each chunk.")
    ] = replication_default,
    chunks: Annotated[
        int,
        typer.Option(
            "--chunks", metavar="N", min=1, max=plan_chunks_max, help="Chunks of each writer, 64 MiB each."
        ),
    ] = 1,
    policy: Annotated[
        str, typer.Option("--policy", help="random, paper, paper-3, paper-5, flow, express or timely.")
    ] = "express",
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same plan.")] = 0,
    topology_file: Annotated[
        Path | None,
        typer.Option(
            "--topology",
            metavar="FILE",
            help="Plan for this network, without a coordinator: TOML, or Hadoop's rack table.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Show where a policy would put chunks, and when.

    A dry run: reserves nothing, and assumes an idle cluster.
    """
    from .plan_command import PlanOptions, run_plan

    run_plan(PlanOptions(policy, seed, writers or (), replication, chunks, topology_file, coordinator, as_json))


@topology.command("check")
def topology_check(file: _TopologyFile) -> None:
    """Check a description, and name the line of its first mistake."""
    from .topology_command import check

    check(file)


@topology.command("show")
def topology_show(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="Description of a network. [default: the network of a running cluster]"
        ),
    ] = None,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="OUT", help="Write a picture.")] = None,
    dot: Annotated[
        Path | None, typer.Option("--dot", metavar="OUT", help="Write the graph of capacities for Graphviz.")
    ] = None,
    graphml: Annotated[
        Path | None, typer.Option("--graphml", metavar="OUT", help="Write the graph of capacities as GraphML.")
    ] = None,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Draw a network as a tree, with the rates of its links.

    Without FILE, draws the network of the running cluster, with the number of chunks now on each link and the
    number that the link can carry.
    """
    from .topology_command import show

    show(file, coordinator, svg=svg, dot=dot, graphml=graphml)


@topology.command("calibrate")
def topology_calibrate(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", show_default=False, help="Description in TOML; created if it does not exist."
        ),
    ],
    coordinator: Coordinator = DEFAULT_COORDINATOR,
    seconds: Annotated[
        float,
        typer.Option("--seconds", metavar="S", min=0.1, max=60, help="Duration of each measurement."),
    ] = calibration_s,
) -> None:
    """Measure the running cluster's disks and links.

    Writes the rates into FILE: of each datanode's disk with 1, 2, 4 and 8 streams, and of each link between racks.
    Run it when the cluster has little other work, on a machine whose network card is at least as fast as the
    disks. Deletes its data at once. Keeps only the comment at the head of FILE.
    """
    from .calibrate_command import calibrate

    calibrate(file, coordinator, seconds)


@topology.command("reload")
def topology_reload(coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Make the coordinator reload its topology file.

    If the file has a mistake, the mistake is reported and nothing changes.
    """
    from .topology_command import reload

    reload(coordinator)
