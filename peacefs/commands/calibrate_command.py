"""`peacefs topology calibrate`: measure disks and links, and write the results to a topology file."""

from __future__ import annotations

import os
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from peacefs.client.calibrator import Calibrator, LinkRate
from peacefs.client.command_line.progress import StepProgress, step_progress
from peacefs.client.control.addresses import parse_address
from peacefs.client.control.api import CoordinatorApi, current_user
from peacefs.client.control.http import CoordinatorHttp
from peacefs.client.control.retry import RetryPolicy
from peacefs.client.control.rpc import ControlRpc
from peacefs.protocol.errors import BadRequest, InvalidTopology
from peacefs.protocol.handshake import Identity
from peacefs.protocol.limits import calibration_streams
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.thread_driver import ThreadDriver
from peacefs.topology.loader import load_topology
from peacefs.topology.measured import sides, with_measured
from peacefs.topology.model import Link, Topology
from peacefs.topology.network_view import NetworkView, ServerView
from peacefs.topology.rate_curve import RateCurve
from peacefs.topology.terminal_drawing import show_rate
from peacefs.topology.toml_writer import to_toml

#: A measured link counts as the bottleneck only if the disks ran below this share of their rate.
_DISKS_BUSY = 0.8


def calibrate(file: Path, coordinator: str, seconds: float) -> None:
    """Measure every live datanode, and write the rates to `file`: an existing description, or a new one.

    Raises InvalidTopology, BadRequest, and errors of the coordinator and datanodes.
    """
    if file.suffix != ".toml":
        raise BadRequest(f"{file}: rates can be written only to a file whose name ends in .toml")
    address, retry_policy = parse_address(coordinator), RetryPolicy()
    api = CoordinatorApi(CoordinatorHttp(address, retry_policy), current_user())
    connections = ConnectionPool(Identity("", "client", f"calibrate {socket.gethostname()}/{os.getpid()}", None))
    calls = ControlRpc(address, connections, retry_policy)
    try:
        view = api.network()
        described, node_of = _described(file, view)
        calibration = _Calibration(
            described, node_of, Calibrator(api, ThreadDriver(connections, calls.call), seconds)
        )
        with step_progress() as progress:
            measured = calibration.run(progress)
    finally:
        connections.close_all()
        api.close()
    _write(file, measured)
    sys.stdout.write(calibration.summary(measured))
    sys.stdout.write(f"written to {file}" + ("; now: peacefs topology reload\n" if view.described else "\n"))


class _Calibration:
    """One measurement of a topology. `node_of` maps its servers to datanode ids."""

    def __init__(self, topology: Topology, node_of: dict[str, str], calibrator: Calibrator) -> None:
        self._topology = topology
        self._node_of = node_of
        self._calibrator = calibrator
        self._notes: list[str] = []

    def run(self, progress: StepProgress) -> Topology:
        links = list(self._links())
        progress.expect(len(self._node_of) * len(calibration_streams) + len(links))
        disks = {name: self._disk(name, progress) for name in self._node_of}
        rates: dict[frozenset[str], float] = {}
        for link, one, other in links:
            progress.step(f"{link.a} - {link.b}")
            rate = self._calibrator.link(
                [self._node_of[name] for name in one], [self._node_of[name] for name in other]
            )
            if self._was_limit(rate, [disks[name] for name in (*one, *other)]):
                rates[link.ends] = rate.bytes_s
            else:
                self._notes.append(
                    f"{link.a} - {link.b}: at least {show_rate(rate.bytes_s)}, for the disks were busy "
                    f"before it was; left at {show_rate(link.bytes_s)}"
                )
        return with_measured(self._topology, disks, rates)

    def _disk(self, name: str, progress: StepProgress) -> RateCurve:
        points = []
        for streams in calibration_streams:
            progress.step(f"{name}, {streams} at once")
            points.append((streams, self._calibrator.disk_at(self._node_of[name], streams)))
        return RateCurve(tuple(points))

    def _links(self) -> Iterator[tuple[Link, list[str], list[str]]]:
        """Yield switch links with datanodes on both sides; none in a mesh, where paths are unknown."""
        if not self._topology.is_tree:
            self._notes.append("the network is a mesh: its links are left as they were described")
            return
        for link in self._topology.switch_links():
            one, other = ([name for name in side if name in self._node_of] for side in sides(self._topology, link))
            if one and other:
                yield link, one, other

    @staticmethod
    def _was_limit(rate: LinkRate, disks: list[RateCurve]) -> bool:
        return rate.disk_bytes_s < _DISKS_BUSY * min(disk.rate(rate.disk_streams) for disk in disks)

    def summary(self, measured: Topology) -> str:
        curves = Counter(measured.servers[name].disk for name in self._node_of)
        lines = [
            f"{count} disk{'s' if count > 1 else ''}: "
            + ", ".join(f"{show_rate(rate)} with {streams}" for streams, rate in curve.points)
            for curve, count in curves.most_common()
        ]
        lines += (f"{link.a} - {link.b}: {show_rate(link.bytes_s)}" for link in measured.switch_links())
        return "\n".join([*lines, *self._notes]) + "\n"


# -- the file ----------------------------------------------------------------------------------------


def _described(file: Path, view: NetworkView) -> tuple[Topology, dict[str, str]]:
    """Return the network from the file, or without a file the coordinator's, and the datanode of each server.

    Raises InvalidTopology if no server is alive, or if two datanodes match one server.
    """
    if not view.servers:
        raise InvalidTopology("no datanode is alive: there is nothing to measure")
    if not file.exists():
        return _named_by_host(view)
    topology = load_topology(file)
    node_of: dict[str, str] = {}
    for server in view.servers:
        names = (server.server, f"{server.host}:{server.data_port}", server.host)
        name = next((name for name in names if name in topology.servers), None)
        if name is None:
            continue
        if name in node_of:
            raise InvalidTopology(f"{file}: {name} is more than one datanode; name them as HOST:DATA-PORT")
        node_of[name] = server.server
    if not node_of:
        raise InvalidTopology(f"{file}: none of its servers is alive in this cluster")
    return topology, node_of


def _named_by_host(view: NetworkView) -> tuple[Topology, dict[str, str]]:
    """Name servers by host, with the port if a host has several datanodes."""
    hosts = Counter(server.host for server in view.servers)

    def name(server: ServerView) -> str:
        return server.host if hosts[server.host] == 1 else f"{server.host}:{server.data_port}"

    node_of = {name(server): server.server for server in view.servers}
    name_of = {node: name for name, node in node_of.items()}
    topology = view.topology()
    return (
        replace(
            topology,
            servers={
                name_of[node]: replace(server, name=name_of[node]) for node, server in topology.servers.items()
            },
            links=tuple(replace(link, a=name_of.get(link.a, link.a)) for link in topology.links),
        ),
        node_of,
    )


def _write(file: Path, topology: Topology) -> None:
    """Write the file atomically. A comment at the head of the old file stays; other comments are lost."""
    text = _heading(file.read_text() if file.exists() else "") + to_toml(topology)
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        fresh.write_text(text)
        fresh.replace(file)
    finally:
        fresh.unlink(missing_ok=True)


def _heading(text: str) -> str:
    lines: list[str] = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line + "\n")
    return "".join([*lines, "\n"]) if lines else ""
