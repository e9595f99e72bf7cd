"""Executes `peacefs datanodes`: lists datanodes, takes them out of service and back."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.errors import BadRequest

from .listing import print_line
from .report import table

_HEADINGS = ("DATANODE", "ADDRESS", "RACK", "STATE", "SERVICE", "REPLICAS", "TO DRAIN")
_WORDS = 5


class DatanodeCommand(StrEnum):
    """A decision about a datanode; the last part of the route."""

    DECOMMISSION = "decommission"
    RECOMMISSION = "recommission"
    MAINTENANCE = "maintenance"


def list_datanodes(coordinator: str, *, as_json: bool) -> None:
    """Print one line per datanode. Raises PeacefsError."""
    with PeaceFileSystem(coordinator) as files:
        datanodes = files.cluster_status()["datanodes"]
    for line in map(_json, datanodes) if as_json else table([_HEADINGS, *map(_row, datanodes)], _WORDS):
        print_line(line)
    if not as_json:
        for datanode in datanodes:
            if stuck := _stuck(datanode):
                print_line(f"{datanode['node']} cannot leave yet: {stuck}")


def decide(coordinator: str, names: list[str], decision: DatanodeCommand, hours: float | None = None) -> None:
    """Apply a decision to each datanode, and print its new state. Raises BadRequest before any change."""
    with PeaceFileSystem(coordinator) as files:
        known = files.cluster_status()["datanodes"]
        for node in [_resolve(name, known) for name in names]:
            datanode = files.decide_about_datanode(node, decision, hours=hours)
            print_line(f"{datanode['node']} {_address(datanode)} is {_admin_state(datanode)}")


def _resolve(name: str, known: list[dict[str, Any]]) -> str:
    """Find a datanode by its id, by a unique prefix of its id, or by its address."""
    exact = [each["node"] for each in known if name in (each["node"], _address(each))]
    found = exact or [each["node"] for each in known if each["node"].startswith(name)]
    if len(found) != 1:
        raise BadRequest(f"{'several datanodes begin with' if found else 'there is no datanode'} {name!r}")
    return str(found[0])


def _address(datanode: dict[str, Any]) -> str:
    """Return the address, or "-": only superusers see it."""
    return f"{datanode['host']}:{datanode['data_port']}" if datanode["host"] else "-"


def _admin_state(datanode: dict[str, Any]) -> str:
    left = f", {datanode['to_drain']} chunks to drain" if datanode["to_drain"] else ""
    stuck = _stuck(datanode)
    return f"{datanode['service']}{left}{': ' if stuck else ''}{stuck}"


def _stuck(datanode: dict[str, Any]) -> str:
    """Return why the datanode cannot leave with the present datanodes; empty if it can."""
    if not (chunks := datanode.get("without_a_place")):
        return ""
    return (
        f"{chunks} chunks want more replicas than there are datanodes that stay. "
        "Start more datanodes, or want fewer replicas (peacefs setrep)"
    )


def _row(datanode: dict[str, Any]) -> tuple[str, ...]:
    return (
        datanode["node"],
        _address(datanode),
        datanode["rack"],
        datanode["state"],
        datanode["service"],
        str(datanode["replicas"]),
        str(datanode["to_drain"]),
    )


def _json(datanode: dict[str, Any]) -> str:
    return msgspec.json.encode(datanode).decode()
