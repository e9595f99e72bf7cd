"""Writes a topology in the format of `toml_file`, as a structure or as text.

Reading the result gives the same topology, except for the order of links. Disks are named "disk-1", "disk-2", ...
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .model import Link, Topology
from .rate_curve import RateCurve

#: The attributes shared by the servers of one group: rack, rate and cost of the link, disk.
_Likeness = tuple[str, float, int, RateCurve]


def to_structure(topology: Topology) -> dict[str, Any]:
    """Return the tables of a topology file, as accepted by `toml_file.parse_structure`."""
    disks = _Disks()
    defaults = topology.defaults
    structure: dict[str, Any] = {
        "shape": "tree" if topology.is_tree else "mesh",
        "root": topology.root,
        "defaults": {
            "server_link_bytes_s": defaults.server_link_bytes_s,
            "switch_link_bytes_s": defaults.switch_link_bytes_s,
            "disk": disks.name(defaults.disk),
        },
    }
    uplinks: dict[str, Link] = {}
    for link in topology.switch_links():
        uplinks.setdefault(link.a, link)
    switches = [_switch(name, uplinks.get(name)) for name in topology.switches]
    servers = [_group(likeness, names, disks) for likeness, names in _alike(topology).items()]
    others = [_link(link) for link in _other_links(topology, uplinks)]
    structure["disk"] = disks.tables()
    for table, entries in (("switch", switches), ("servers", servers), ("link", others)):
        if entries:
            structure[table] = entries
    return structure


def to_toml(topology: Topology) -> str:
    """Return the text of a topology file, without comments."""
    structure = to_structure(topology)
    lines = [f"{key} = {_value(structure.pop(key))}" for key in ("shape", "root")]
    for name, table in structure.items():
        for entry in table if isinstance(table, list) else [table]:
            lines += ["", f"[[{name}]]" if isinstance(table, list) else f"[{name}]"]
            lines += (f"{key} = {_value(value)}" for key, value in entry.items())
    return "\n".join(lines) + "\n"


class _Disks:
    """Assigns names to disk curves."""

    def __init__(self) -> None:
        self._names: dict[RateCurve, str] = {}

    def name(self, curve: RateCurve) -> str:
        return self._names.setdefault(curve, f"disk-{len(self._names) + 1}")

    def tables(self) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "streams": [streams for streams, _ in curve.points],
                "bytes_s": [rate for _, rate in curve.points],
            }
            for curve, name in self._names.items()
        ]


def _switch(name: str, uplink: Link | None) -> dict[str, Any]:
    if uplink is None:
        return {"name": name}
    return {"name": name, "uplink": uplink.b, "bytes_s": uplink.bytes_s, "cost": uplink.cost}


def _alike(topology: Topology) -> Mapping[_Likeness, list[str]]:
    groups: dict[_Likeness, list[str]] = {}
    for name, server in topology.servers.items():
        first = topology.server_links(name)[0]
        groups.setdefault((server.rack, first.bytes_s, first.cost, server.disk), []).append(name)
    return groups


def _group(likeness: _Likeness, names: list[str], disks: _Disks) -> dict[str, Any]:
    rack, bytes_s, cost, disk = likeness
    return {"rack": rack, "names": names, "bytes_s": bytes_s, "cost": cost, "disk": disks.name(disk)}


def _other_links(topology: Topology, uplinks: Mapping[str, Link]) -> Iterator[Link]:
    """Yield the links that are neither a switch's uplink nor a server's link to its rack."""
    for link in topology.links:
        server = topology.servers.get(link.a)
        if link != uplinks.get(link.a) and (server is None or link.b != server.rack):
            yield link


def _link(link: Link) -> dict[str, Any]:
    return {"between": [link.a, link.b], "bytes_s": link.bytes_s, "cost": link.cost}


def _value(value: object) -> str:
    match value:
        case float():
            return f"{value:_.0f}" if value.is_integer() else repr(value)
        case list():
            return f"[{', '.join(map(_value, value))}]"
        case str():
            # TOML's basic strings are escaped like JSON, but have no surrogate pairs; so write non-ASCII as it is.
            return json.dumps(value, ensure_ascii=False)
    return str(value)
