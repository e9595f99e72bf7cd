"""Racks as Hadoop knows them: paths ("/site/rack-1"), and the table that gives each host its own.

The table is that of `net.topology.table.file.name`: two columns, host and rack, separated by white space;
empty lines and lines that begin with # say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from peacefs.protocol.errors import InvalidTopology

from .model import Defaults, Link, Server, Topology

rack_depth_max: Final = 16


def parse_rack(text: str) -> str:
    """A rack path in its one spelling: a leading slash, none at the end. Raises InvalidTopology."""
    parts = text.strip().strip("/").split("/")
    if not all(part and not any(c.isspace() or not c.isprintable() for c in part) for part in parts):
        raise InvalidTopology(f"{text!r} is no rack: a path such as /rack-1 or /site/rack-1 is wanted")
    if len(parts) > rack_depth_max:
        raise InvalidTopology(f"rack {text!r} is more than {rack_depth_max} levels deep")
    return "/" + "/".join(parts)


def parse_rack_table(text: str, defaults: Defaults | None = None) -> Topology:
    """The tree of all racks below "/", with the default rates. Raises InvalidTopology with the line."""
    seen: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        columns = line.split()
        if not columns or columns[0].startswith("#"):
            continue
        if len(columns) != 2:
            raise InvalidTopology(f"line {number}: two columns are wanted, host and rack; here are {len(columns)}")
        host = columns[0]
        if "/" in host:
            raise InvalidTopology(
                f"line {number}: {host} is no host; the first column is the host, the second its rack"
            )
        if host in seen:
            raise InvalidTopology(f"line {number}: host {host} is listed twice, first in line {seen[host][1]}")
        try:
            seen[host] = parse_rack(columns[1]), number
        except InvalidTopology as mistake:
            raise InvalidTopology(f"line {number}: {mistake.message}") from None
    return tree_of_racks({host: rack for host, (rack, _) in seen.items()}, defaults or Defaults())


def tree_of_racks(rack_of: Mapping[str, str], defaults: Defaults) -> Topology:
    """All racks below "/", with the default rates. `rack_of` gives each server its rack, as `parse_rack` spells
    it; no server is called as a rack is."""
    topology = Topology(defaults=defaults)
    for rack in dict.fromkeys(rack_of.values()):
        topology = topology.with_switch(rack)
    return replace(
        topology,
        servers={host: Server(host, rack, defaults.disk) for host, rack in rack_of.items()},
        links=(
            *topology.links,
            *(Link(host, rack, defaults.server_link_bytes_s) for host, rack in rack_of.items()),
        ),
    )
