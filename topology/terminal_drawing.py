"""Draws a topology as a text tree, for terminals and logs."""

from __future__ import annotations

from .link_load import Loads, load_on
from .model import Link, Topology
from .rate_curve import MB
from .spanning import Branch, spanning_tree


def draw_tree(topology: Topology, loads: Loads | None = None) -> str:
    """Return one line per switch or server: name, rate and load of its link to the parent, and further links that
    are not in the tree. Loads are as seen from the switch or server.
    """
    root = spanning_tree(topology)
    lines = [_label(root, loads or {})]
    _draw_below(root, "", lines, loads or {})
    return "\n".join(lines) + "\n"


def _draw_below(branch: Branch, indent: str, lines: list[str], loads: Loads) -> None:
    for child in branch.below:
        is_last = child is branch.below[-1]
        lines.append(f"{indent}{'└── ' if is_last else '├── '}{_label(child, loads)}")
        _draw_below(child, indent + ("    " if is_last else "│   "), lines, loads)


def _label(branch: Branch, loads: Loads) -> str:
    rate = f"  {_link(branch, branch.link, loads)}" if branch.link else ""
    servers = sum(child.is_server for child in branch.below)
    count = f"  ({servers} server{'s' if servers != 1 else ''})" if servers else ""
    also = "".join(f"  + {link.other(branch.name)} {_link(branch, link, loads)}" for link in branch.cross)
    return f"{branch.name}{rate}{count}{also}"


def _link(branch: Branch, link: Link, loads: Loads) -> str:
    load = load_on(loads, link)
    return show_rate(link.bytes_s) + (f"  [{load.from_end(branch.name)}]" if load else "")


def show_rate(bytes_s: float) -> str:
    """Format a rate: `125 MB/s`."""
    if bytes_s >= 1000 * MB:
        return f"{bytes_s / (1000 * MB):.3g} GB/s"
    return f"{bytes_s / MB:.3g} MB/s"
