"""Draws a topology as SVG: levels from top to bottom, faster links thicker."""

from __future__ import annotations

from collections.abc import Iterator
from math import log2
from xml.etree import ElementTree

from .link_load import Loads, load_on
from .model import Link, Topology
from .spanning import Branch, spanning_tree
from .terminal_drawing import show_rate

_SERVER_WIDTH = 26.0
_LEVEL_HEIGHT = 110.0
_MARGIN = 40.0

_STYLE = """
  text { font: 12px sans-serif; fill: #222; }
  .switch rect { fill: #dbe7f5; stroke: #35577d; }
  .server circle { fill: #e7f3df; stroke: #4c7a34; }
  line { stroke: #888; stroke-linecap: round; }
  line.cross { stroke: #b3593b; stroke-dasharray: 6 4; }
  line.busy { stroke: #2f7ed8; }
  line.full { stroke: #d03030; }
"""

Place = tuple[float, float]


def draw_svg(topology: Topology, loads: Loads | None = None) -> str:
    """Return an SVG document. Rates and loads are the tooltips of links. A busy link is blue, a full one red."""
    loads = loads or {}
    root = spanning_tree(topology)
    places: dict[str, Place] = {}
    _place(root, _MARGIN, places)
    width = root.leaves() * _SERVER_WIDTH + 2 * _MARGIN
    height = max(y for _, y in places.values()) + _LEVEL_HEIGHT
    svg = ElementTree.Element(
        "svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width:g} {height:g}", role="img"
    )
    ElementTree.SubElement(svg, "title").text = f"{len(topology.servers)} servers, {len(topology.racks)} racks"
    ElementTree.SubElement(svg, "style").text = _STYLE
    branches = list(_all(root))
    slowest = min((link.bytes_s for link in topology.links), default=1.0)
    for branch in branches:
        if branch.link:
            _draw_link(svg, branch.link, places, slowest, loads, "link")
        for link in branch.cross:
            _draw_link(svg, link, places, slowest, loads, "cross")
    for branch in branches:
        _draw_branch(svg, branch, places[branch.name])
    ElementTree.indent(svg)
    return ElementTree.tostring(svg, encoding="unicode") + "\n"


def _all(branch: Branch) -> Iterator[Branch]:
    yield branch
    for child in branch.below:
        yield from _all(child)


def _place(branch: Branch, left: float, places: dict[str, Place]) -> None:
    places[branch.name] = left + branch.leaves() * _SERVER_WIDTH / 2, _MARGIN + branch.depth * _LEVEL_HEIGHT
    for child in branch.below:
        _place(child, left, places)
        left += child.leaves() * _SERVER_WIDTH


def _draw_link(
    svg: ElementTree.Element, link: Link, places: dict[str, Place], slowest: float, loads: Loads, kind: str
) -> None:
    (x1, y1), (x2, y2) = places[link.a], places[link.b]
    load = load_on(loads, link)
    if load is not None:
        kind += " full" if load.is_full else " busy"
    line = ElementTree.SubElement(
        svg,
        "line",
        {
            "class": kind,
            "x1": f"{x1:g}",
            "y1": f"{y1:g}",
            "x2": f"{x2:g}",
            "y2": f"{y2:g}",
            "stroke-width": f"{1.5 + log2(link.bytes_s / slowest):.2f}",
        },
    )
    ElementTree.SubElement(line, "title").text = f"{link.a} - {link.b}: {show_rate(link.bytes_s)}" + (
        f", {load.from_end(link.a)}" if load else ""
    )


def _draw_branch(svg: ElementTree.Element, branch: Branch, place: Place) -> None:
    x, y = place
    group = ElementTree.SubElement(
        svg, "g", {"class": "server" if branch.is_server else "switch", "transform": f"translate({x:g} {y:g})"}
    )
    ElementTree.SubElement(group, "title").text = branch.name
    if branch.is_server:
        ElementTree.SubElement(group, "circle", r="9")
        label = ElementTree.SubElement(group, "text", {"transform": "rotate(60)", "x": "14", "y": "4"})
    else:
        half = 6 + 3.6 * len(branch.name)
        ElementTree.SubElement(group, "rect", x=f"{-half:g}", y="-12", width=f"{2 * half:g}", height="24", rx="5")
        label = ElementTree.SubElement(group, "text", {"text-anchor": "middle", "y": "4"})
    label.text = branch.name
