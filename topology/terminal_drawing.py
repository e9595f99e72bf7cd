"""A topology as a tree of text, for terminals and logs."""

from __future__ import annotations

from .model import Topology
from .rate_curve import MB
from .spanning import Branch, spanning_tree


def draw_tree(topology: Topology) -> str:
    """One line a switch or server, with the rate of its link; links outside the tree are named after it."""
    root = spanning_tree(topology)
    lines = [_label(root)]
    _draw_below(root, "", lines)
    return "\n".join(lines) + "\n"


def _draw_below(branch: Branch, indent: str, lines: list[str]) -> None:
    for child in branch.below:
        is_last = child is branch.below[-1]
        lines.append(f"{indent}{'└── ' if is_last else '├── '}{_label(child)}")
        _draw_below(child, indent + ("    " if is_last else "│   "), lines)


def _label(branch: Branch) -> str:
    rate = f"  {show_rate(branch.link.bytes_s)}" if branch.link else ""
    servers = sum(child.is_server for child in branch.below)
    count = f"  ({servers} server{'s' if servers != 1 else ''})" if servers else ""
    also = "".join(f"  + {link.other(branch.name)} {show_rate(link.bytes_s)}" for link in branch.cross)
    return f"{branch.name}{rate}{count}{also}"


def show_rate(bytes_s: float) -> str:
    """A rate as people read it: `125 MB/s`."""
    if bytes_s >= 1000 * MB:
        return f"{bytes_s / (1000 * MB):.3g} GB/s"
    return f"{bytes_s / MB:.3g} MB/s"
