"""The spanning tree of a topology, from which both drawings are made."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from .model import Link, Topology


@dataclass(slots=True)
class Branch:
    """A switch or server, its link to the parent, and its children. `cross` are links outside the tree."""

    name: str
    link: Link | None
    depth: int
    is_server: bool
    below: list[Branch] = field(default_factory=list)
    cross: list[Link] = field(default_factory=list)

    def leaves(self) -> int:
        """Return the number of leaves below this branch; 1 if it is a leaf."""
        return sum(branch.leaves() for branch in self.below) or 1


def spanning_tree(topology: Topology) -> Branch:
    """Return a breadth-first spanning tree from the root. Switches come before servers, both sorted by name."""
    root = Branch(topology.root, None, 0, False)
    placed = {root.name: root}
    crossing: dict[Link, Branch] = {}
    waiting = deque([root])
    while waiting:
        branch = waiting.popleft()
        onward = {link.other(branch.name): link for link in topology.links_at[branch.name] if link != branch.link}
        for name in sorted(onward, key=lambda name: (name in topology.servers, name)):
            is_server = name in topology.servers
            is_second_card = is_server and topology.servers[name].rack != branch.name
            if name in placed or is_second_card:
                crossing.setdefault(onward[name], branch)
                continue
            child = placed[name] = Branch(name, onward[name], branch.depth + 1, is_server)
            branch.below.append(child)
            waiting.append(child)
    for link, branch in crossing.items():
        branch.cross.append(link)
    return root
