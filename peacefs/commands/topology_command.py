"""`peacefs topology`: check a description of a network, draw it, and show its load."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from peacefs.client.control.addresses import parse_address
from peacefs.client.control.api import CoordinatorApi, current_user
from peacefs.client.control.http import CoordinatorHttp
from peacefs.topology.calibration import calibrate
from peacefs.topology.graph import Graph, Streams
from peacefs.topology.graph_export import to_dot, to_graphml
from peacefs.topology.link_load import Loads
from peacefs.topology.loader import load_topology
from peacefs.topology.model import Topology
from peacefs.topology.network_view import NetworkView
from peacefs.topology.svg_drawing import draw_svg
from peacefs.topology.terminal_drawing import draw_tree


def check(file: Path) -> None:
    """Print in one line what the file describes. Raises InvalidTopology with the line of the mistake."""
    topology = load_topology(file)
    shape = "a tree" if topology.is_tree else "a mesh"
    parts = ", ".join(
        (
            _counted(len(topology.racks), "rack", "racks"),
            _counted(len(topology.switches), "switch", "switches"),
            _counted(len(topology.servers), "server", "servers"),
            _counted(len(topology.links), "link", "links"),
        )
    )
    sys.stdout.write(f"{file}: {shape} of {parts}\n")


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def show(file: Path | None, coordinator: str, *, svg: Path | None, dot: Path | None, graphml: Path | None) -> None:
    """Draw a file's network, or a running cluster's with the load of its links, on stdout and into files.

    DOT and GraphML contain the paper's graph, with capacities in concurrent chunks. Raises InvalidTopology, and
    the coordinator's errors.
    """
    loads: Loads = {}
    if file is not None:
        topology = load_topology(file)
    else:
        view = _ask(coordinator, CoordinatorApi.network)
        topology, loads = view.topology(), view.loads()
    if svg is not None:
        svg.write_text(draw_svg(topology, loads))
    if dot is not None:
        dot.write_text(to_dot(_graph(topology)))
    if graphml is not None:
        graphml.write_text(to_graphml(_graph(topology)))
    sys.stdout.write(draw_tree(topology, loads))


def reload(coordinator: str) -> None:
    """Make the coordinator reload its topology file. Raises InvalidTopology, BadRequest if it has no file."""
    view = _ask(coordinator, CoordinatorApi.reload_topology)
    described = sum(server.described for server in view.servers)
    sys.stdout.write(
        f"{_counted(len(view.servers), 'datanode', 'datanodes')} alive, {described} of them described, "
        f"in {_counted(len(view.racks), 'rack', 'racks')}\n"
    )


def _ask(coordinator: str, question: Callable[[CoordinatorApi], NetworkView]) -> NetworkView:
    api = CoordinatorApi(CoordinatorHttp(parse_address(coordinator)), current_user())
    try:
        return question(api)
    finally:
        api.close()


def _graph(topology: Topology) -> Graph:
    return Graph(topology, Streams(calibrate(topology).stream_bytes_s))
