"""Hadoop's racks: paths such as "/site/rack-1", and the table that maps hosts to racks.

The table has the format of `net.topology.table.file.name`: two columns, host and rack, separated by whitespace.
Empty lines and lines that begin with # are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from peacefs.protocol.errors import InvalidTopology

from .model import Defaults, Link, Server, Topology

rack_depth_max: Final = 16


def parse_rack(text: str) -> str:
    """Normalize a rack path: a slash at the beginning, none at the end. Raises InvalidTopology."""
    parts = text.strip().strip("/").split("/")
    if not all(part and not any(c.isspace() or not c.isprintable() for c in part) for part in parts):
        raise InvalidTopology(f"{text!r} is no rack: a path such as /rack-1 or /site/rack-1 is wanted")
    if len(parts) > rack_depth_max:
        raise InvalidTopology(f"rack {text!r} is more than {rack_depth_max} levels deep")
    return "/" + "/".join(parts)


def parse_rack_table(text: str, defaults: Defaults | None = None) -> Topology:
    """Return a tree of all racks below "/", with default rates. Raises InvalidTopology, which names the line."""
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
    """Return a tree of all racks below "/", with default rates. `rack_of` maps servers to normalized racks; a
    server must not have the name of a rack.
    """
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
