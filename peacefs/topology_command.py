"""`peacefs topology`: whether a description of a network holds together, and what it looks like."""

from __future__ import annotations

import sys
from pathlib import Path

from peacefs.topology.calibration import calibrate
from peacefs.topology.graph import Graph, Streams
from peacefs.topology.graph_export import to_dot, to_graphml
from peacefs.topology.loader import load_topology
from peacefs.topology.model import Topology
from peacefs.topology.svg_drawing import draw_svg
from peacefs.topology.terminal_drawing import draw_tree


def check(file: Path) -> None:
    """Says in one line what the file describes. Raises InvalidTopology, which names the line and the mistake."""
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


def show(file: Path, *, svg: Path | None, dot: Path | None, graphml: Path | None) -> None:
    """Draws the network as text on stdout, and in the files that are asked for. DOT and GraphML are the paper's
    graph, with capacities in concurrent chunks. Raises InvalidTopology."""
    topology = load_topology(file)
    if svg is not None:
        svg.write_text(draw_svg(topology))
    if dot is not None:
        dot.write_text(to_dot(_graph(topology)))
    if graphml is not None:
        graphml.write_text(to_graphml(_graph(topology)))
    sys.stdout.write(draw_tree(topology))


def _graph(topology: Topology) -> Graph:
    return Graph(topology, Streams(calibrate(topology).stream_bytes_s))
