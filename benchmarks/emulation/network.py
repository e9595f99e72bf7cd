"""Racks of hosts as network namespaces, with shaped links from host to rack and between racks.

The coordinator is reached over a second, unshaped network: since rates are scaled down to a tenth, its few bytes
would otherwise wait ten times as long in queues, unlike in a real cluster. Needs root and iproute2.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from . import leftovers

#: Bytes on the cable per byte received: headers of Ethernet, IP and TCP with packets of 1500 bytes.
_WIRE_OVERHEAD = 1.04

#: Socket buffers, as large relative to the scaled chunks as usual buffers are to real chunks.
_SOCKET_BUFFER_BYTES = 131_072

COORDINATOR_ADDRESS = "10.78.0.1"


@dataclass(frozen=True, slots=True)
class Host:
    """A machine of the emulated cluster."""

    name: str
    rack: str
    address: str
    namespace: str

    def inside(self) -> list[str]:
        """Return the words that precede a command to run it on this host."""
        return ["ip", "netns", "exec", self.namespace]


class CannotEmulate(Exception):
    """This machine or this user cannot make network namespaces."""


class EmulatedNetwork:
    """Racks of hosts, as a context manager. `racks` are numbers of hosts; rates are received bytes per second,
    each way.
    """

    def __init__(
        self, racks: Sequence[int], host_bytes_s: float, between_bytes_s: float, congestion: str = "reno"
    ) -> None:
        self._host_bytes_s = host_bytes_s
        self._between_bytes_s = between_bytes_s
        self._congestion = congestion
        self._switches = leftovers.own_name("switches")
        places = [f"/rack-{rack + 1}" for rack, count in enumerate(racks) for _ in range(count)]
        self.racks = list(dict.fromkeys(places))
        self.hosts = [
            Host(f"n{number:02}", rack, f"10.77.0.{number + 1}", leftovers.own_name(f"n{number:02}"))
            for number, rack in enumerate(places)
        ]
        self.coordinator = Host("coordinator", "", COORDINATOR_ADDRESS, leftovers.own_name("coordinator"))

    def __enter__(self) -> Self:
        if os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("tc")):
            raise CannotEmulate("network namespaces need root, and `ip` and `tc` of iproute2")
        try:
            self._build()
        except BaseException:
            leftovers.remove_own_namespaces()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leftovers.remove_own_namespaces()

    # -- how it is built -----------------------------------------------------------------------------

    def _build(self) -> None:
        everywhere = [*self.hosts, self.coordinator]
        _batch(
            ["ip"], [f"netns add {name}" for name in (self._switches, *(host.namespace for host in everywhere))]
        )
        _batch(["ip", "-n", self._switches], self._cables())
        for host in everywhere:
            _batch(["ip", "-n", host.namespace], self._addresses(host))
        for namespace, devices in self._shaped():
            _batch(["tc", "-n", namespace], [self._shaping(*device) for device in devices])
        for host in everywhere:
            self._configure(host)

    def _cables(self) -> Iterator[str]:
        for bridge in (*self._bridges(), "control"):
            yield f"link add {bridge} type bridge"
            yield f"link set {bridge} up"
        first = self._bridges()[0]
        for bridge in self._bridges()[1:]:
            yield f"link add up-{bridge} type veth peer name dn-{bridge}"
            yield f"link set up-{bridge} master {bridge} up"
            yield f"link set dn-{bridge} master {first} up"
        for host in self.hosts:
            yield f"link add {host.name} type veth peer name data netns {host.namespace}"
            yield f"link set {host.name} master {self._bridge(host.rack)} up"
        for host in (*self.hosts, self.coordinator):
            yield f"link add c-{host.name[:12]} type veth peer name control netns {host.namespace}"
            yield f"link set c-{host.name[:12]} master control up"

    def _addresses(self, host: Host) -> Iterator[str]:
        yield "link set lo up"
        yield "link set control up"
        if host == self.coordinator:
            yield f"address add {host.address}/32 dev lo"
            yield f"route add 10.77.0.0/24 dev control src {host.address}"
        else:
            yield f"address add {host.address}/24 dev data"
            yield "link set data up"
            yield f"route add {COORDINATOR_ADDRESS}/32 dev control src {host.address}"

    def _shaped(self) -> Iterator[tuple[str, list[tuple[str, float]]]]:
        between = [
            (f"{end}-{bridge}", self._between_bytes_s) for bridge in self._bridges()[1:] for end in ("up", "dn")
        ]
        yield self._switches, [*((host.name, self._host_bytes_s) for host in self.hosts), *between]
        for host in self.hosts:
            yield host.namespace, [("data", self._host_bytes_s)]

    @staticmethod
    def _shaping(device: str, bytes_s: float) -> str:
        bits_s = round(bytes_s * 8 * _WIRE_OVERHEAD)
        return f"qdisc add dev {device} root tbf rate {bits_s}bit burst 128kb latency 200ms"

    def _configure(self, host: Host) -> None:
        buffers = f"4096 {_SOCKET_BUFFER_BYTES} {_SOCKET_BUFFER_BYTES}"
        settings = {
            "net.ipv4.tcp_congestion_control": self._congestion,
            "net.ipv4.tcp_rmem": buffers,
            "net.ipv4.tcp_wmem": buffers,
            "net.ipv4.conf.all.rp_filter": "0",
            "net.ipv4.conf.control.rp_filter": "0",
        }
        command = [*host.inside(), "sysctl", "-q", "-w", *(f"{key}={value}" for key, value in settings.items())]
        _run(command)

    def _bridges(self) -> list[str]:
        return [self._bridge(rack) for rack in self.racks]

    @staticmethod
    def _bridge(rack: str) -> str:
        return rack.strip("/")


def _batch(command: list[str], lines: Iterator[str] | list[str]) -> None:
    _run([*command, "-batch", "-"], "\n".join(lines))


def _run(command: list[str], text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0 or done.stderr:
        raise CannotEmulate(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")


def memory_directory() -> Path:
    """Return a directory in memory, so that only the emulated disks are slow."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() else Path("/tmp")
