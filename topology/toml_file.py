"""Reads the description of a network from TOML.

    shape = "tree"        # or "mesh": more than one way between two switches. Default: "tree"
    root = "core"         # racks that this file does not name are added below this switch. Default: the first

    [defaults]            # for links and servers without their own values, and for those added at run time
    server_link_bytes_s = 125e6
    switch_link_bytes_s = 125e6
    disk = "spinning"

    [[disk]]              # total write rate by number of concurrent streams; linear in between
    name = "spinning"
    streams = [1, 2, 4, 8]
    bytes_s = [30e6, 45e6, 41e6, 41e6]

    [[switch]]
    name = "core"

    [[switch]]
    name = "/rack-1"
    uplink = "core"       # a link to another switch, with its rate and cost
    bytes_s = 125e6
    cost = 1

    [[servers]]           # identical servers of one rack
    rack = "/rack-1"
    names = ["n1", "n2"]
    bytes_s = 125e6
    cost = 1
    disk = "spinning"

    [[link]]              # any other link: between switches, or a server's second network card
    between = ["/rack-1", "/rack-2"]
    bytes_s = 125e6
    cost = 1

Rack names must be the paths with which datanodes register. Rates are bytes per second in each direction; costs are
integers of at least 0. Everything but `name`, `rack`, `names`, `between` and the numbers of a disk is optional.
Error messages name the line.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Literal

import msgspec

from peacefs.protocol.errors import InvalidTopology

from .model import Defaults, Link, Server, Topology
from .rate_curve import PAPER_DISK, RateCurve
from .toml_lines import NoLines, TomlLines


class _TomlTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    pass


class _Defaults(_TomlTable, frozen=True):
    server_link_bytes_s: float = Defaults().server_link_bytes_s
    switch_link_bytes_s: float = Defaults().switch_link_bytes_s
    disk: str | None = None


class _Disk(_TomlTable, frozen=True):
    name: str
    streams: list[int]
    bytes_s: list[float]


class _Switch(_TomlTable, frozen=True):
    name: str
    uplink: str | None = None
    bytes_s: float | None = None
    cost: int = 1


class _Servers(_TomlTable, frozen=True):
    rack: str
    names: list[str]
    bytes_s: float | None = None
    cost: int = 1
    disk: str | None = None


class _Link(_TomlTable, frozen=True):
    between: tuple[str, str]
    bytes_s: float | None = None
    cost: int = 1


class _File(_TomlTable, frozen=True):
    shape: Literal["tree", "mesh"] = "tree"
    root: str | None = None
    defaults: _Defaults = _Defaults()
    disk: list[_Disk] = []
    switch: list[_Switch] = []
    servers: list[_Servers] = []
    link: list[_Link] = []


def parse_toml(text: str) -> Topology:
    """Parse a TOML file. Raises InvalidTopology, which names the line and the mistake."""
    try:
        structure = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidTopology(f"not TOML: {error}") from None
    except RecursionError:
        raise InvalidTopology("not TOML that can be read: nested too deeply") from None
    return parse_structure(structure, TomlLines(text))


def parse_structure(structure: Mapping[str, Any], lines: NoLines | None = None) -> Topology:
    """Parse the tables of such a file, given as dicts and lists, such as from JSON. Raises InvalidTopology."""
    lines = lines or NoLines()
    try:
        described = msgspec.convert(structure, _File)
    except msgspec.ValidationError as error:
        raise _located(str(error), lines) from None
    return _Reading(described, lines).topology()


_PLACE = re.compile(r"`\$\.(?P<table>\w+)(?:\[(?P<index>\d+)\])?(?:\.(?P<key>\w+))?")
_UNKNOWN = re.compile(r"unknown field `(\w+)`")


def _located(mistake: str, lines: NoLines) -> InvalidTopology:
    """Convert a msgspec error, which names a position in the tree of values, to one that names the line."""
    place, unknown = _PLACE.search(mistake), _UNKNOWN.search(mistake)
    problem = mistake.partition(" - at ")[0].replace("`", "").lower()
    if place is None:
        key = unknown.group(1) if unknown else ""
        return _mistake(problem, lines.find(key, 0) or lines.find(None, 0, key))
    table, key = place["table"], unknown.group(1) if unknown else place["key"]
    line = lines.find(table, int(place["index"] or 0), key) or lines.find(None, 0, table)
    return _mistake(f"{table}: {problem}", line)


def _mistake(problem: str, line: int | None) -> InvalidTopology:
    return InvalidTopology(f"line {line}: {problem}" if line else problem)


class _Reading:
    """Converts one parsed file to a Topology, for `parse_structure`.

    Tables are read in the order disks, defaults, switches, servers, links, because later ones refer to earlier
    ones. Names are stored with their line, for error messages. Raises InvalidTopology at the first mistake.
    """

    def __init__(self, described: _File, lines: NoLines) -> None:
        self._file = described
        self._lines = lines
        self._disks: dict[str, RateCurve] = {}
        self._switches: dict[str, int | None] = {}
        self._servers: dict[str, int | None] = {}
        self._members: dict[str, Server] = {}
        self._links: dict[frozenset[str], Link] = {}
        self._link_lines: dict[frozenset[str], int | None] = {}

    def topology(self) -> Topology:
        self._read_disks()
        defaults = self._read_defaults()
        self._read_switches()
        self._read_servers(defaults)
        self._read_links(defaults)
        self._check_shape()
        return Topology(
            switches=tuple(self._switches),
            servers=self._members,
            links=tuple(self._links.values()),
            root=self._root(),
            defaults=defaults,
        )

    # -- tables ----------------------------------------------------------------------------------

    def _read_disks(self) -> None:
        for index, disk in enumerate(self._file.disk):
            line = self._lines.find("disk", index, disk.name)
            if disk.name in self._disks:
                raise _mistake(f"disk {disk.name} is described twice", line)
            if not disk.streams or len(disk.streams) != len(disk.bytes_s):
                raise _mistake(f"disk {disk.name} needs as many bytes_s as streams, at least one", line)
            if disk.streams[0] < 1 or any(b <= a for a, b in pairwise(disk.streams)):
                raise _mistake(f"disk {disk.name}: streams must rise, from 1 on", line)
            for rate in disk.bytes_s:
                self._check_rate(rate, f"disk {disk.name}", line)
            self._disks[disk.name] = RateCurve(tuple(zip(disk.streams, disk.bytes_s, strict=True)))

    def _read_defaults(self) -> Defaults:
        given = self._file.defaults
        for key in ("server_link_bytes_s", "switch_link_bytes_s"):
            self._check_rate(getattr(given, key), key, self._lines.find("defaults", 0, key))
        disk = self._disk(given.disk, PAPER_DISK, self._lines.find("defaults", 0, "disk"))
        return Defaults(given.server_link_bytes_s, given.switch_link_bytes_s, disk)

    def _read_switches(self) -> None:
        if not self._file.switch:
            raise InvalidTopology("no [[switch]]: a network has at least one")
        for index, switch in enumerate(self._file.switch):
            line = self._lines.find("switch", index, switch.name)
            self._check_name(switch.name, line)
            if switch.name in self._switches:
                raise _mistake(
                    f"switch {switch.name} is described twice, first in line {self._switches[switch.name]}", line
                )
            self._switches[switch.name] = line

    def _read_servers(self, defaults: Defaults) -> None:
        for index, group in enumerate(self._file.servers):
            here = self._lines.find("servers", index, group.rack)
            self._check_switch(group.rack, here)
            disk = self._disk(group.disk, defaults.disk, self._lines.find("servers", index, group.disk))
            for name in group.names:
                line = self._lines.find("servers", index, name, last=True)
                self._check_name(name, line)
                if name in self._servers:
                    raise _mistake(f"server {name} is listed twice, first in line {self._servers[name]}", line)
                if name in self._switches:
                    raise _mistake(f"{name} is a switch, see line {self._switches[name]}", line)
                self._servers[name] = self._lines.find("servers", index, name)
                self._members[name] = Server(name, group.rack, disk)
                rate = defaults.server_link_bytes_s if group.bytes_s is None else group.bytes_s
                self._add(Link(name, group.rack, rate, group.cost), "servers", index, "rack")

    def _read_links(self, defaults: Defaults) -> None:
        between_switches = defaults.switch_link_bytes_s
        for index, switch in enumerate(self._file.switch):
            if switch.uplink is not None:
                line = self._lines.find("switch", index, "uplink")
                self._check_switch(switch.uplink, line)
                rate = between_switches if switch.bytes_s is None else switch.bytes_s
                self._add(Link(switch.name, switch.uplink, rate, switch.cost), "switch", index, "uplink")
        for index, link in enumerate(self._file.link):
            line = self._lines.find("link", index, "between")
            a, b = sorted(link.between, key=lambda end: end not in self._servers)
            self._check_switch(b, line)
            if a not in self._servers:
                self._check_switch(a, line)
            default = defaults.server_link_bytes_s if a in self._servers else between_switches
            rate = default if link.bytes_s is None else link.bytes_s
            self._add(Link(a, b, rate, link.cost), "link", index, "between")

    def _add(self, link: Link, table: str, index: int, key: str) -> None:
        """Add a link that was described by `key` in the `index`th `table`."""
        name = f"link {link.a} - {link.b}"
        line = self._lines.find(table, index, key)
        self._check_rate(link.bytes_s, name, self._lines.find(table, index, "bytes_s"))
        if link.cost < 0:
            raise _mistake(f"{name}: cost {link.cost} is negative", self._lines.find(table, index, "cost"))
        if link.a == link.b:
            raise _mistake(f"{name} leads back to where it began", line)
        if link.ends in self._links:
            raise _mistake(
                f"{name} is described twice, first in line {self._link_lines[link.ends]}; add up the rates", line
            )
        self._links[link.ends] = link
        self._link_lines[link.ends] = line

    # -- checks ----------------------------------------------------------------------------------

    def _root(self) -> str:
        root = self._file.root
        if root is not None and root not in self._switches:
            raise _mistake(f"root: there is no switch {root}", self._lines.find(None, 0, "root"))
        return root or next(iter(self._switches))

    def _disk(self, name: str | None, default: RateCurve, line: int | None) -> RateCurve:
        if name is not None and name not in self._disks:
            raise _mistake(f"there is no disk {name}", line)
        return self._disks[name] if name else default

    def _check_name(self, name: str, line: int | None) -> None:
        if not name or not name.isprintable():
            raise _mistake(f"{name!r} is no name", line)

    def _check_switch(self, name: str, line: int | None) -> None:
        if name not in self._switches:
            raise _mistake(f"there is no switch {name}", line)

    def _check_rate(self, bytes_s: float, what: str, line: int | None) -> None:
        if not (math.isfinite(bytes_s) and bytes_s > 0):
            raise _mistake(f"{what}: {bytes_s:g} bytes a second is no rate; it must be above zero", line)

    def _check_shape(self) -> None:
        """Check that the network is connected, and has no cycles unless its shape is "mesh"."""
        piece = {name: name for name in (*self._switches, *self._servers)}

        def representative(name: str) -> str:
            while piece[name] != name:
                piece[name] = piece[piece[name]]
                name = piece[name]
            return name

        for ends, link in self._links.items():
            a, b = representative(link.a), representative(link.b)
            if a == b and self._file.shape == "tree":
                raise _mistake(
                    f'link {link.a} - {link.b} closes a cycle; a tree has none (else say shape = "mesh")',
                    self._link_lines[ends],
                )
            piece[a] = b
        mainland = representative(self._root())
        for name, line in (self._switches | self._servers).items():
            if representative(name) != mainland:
                raise _mistake(f"{name} is on an island: no links lead from {self._root()} to it", line)
