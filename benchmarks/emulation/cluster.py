"""peacefs on an emulated network: a coordinator, a datanode a host, and writers on the hosts that write."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from peacefs.client.local_cluster.member_process import PEACEFS, LocalMember, MemberReady
from peacefs.topology.model import Topology
from peacefs.topology.rate_curve import RateCurve
from peacefs.topology.toml_writer import to_toml

from . import leftovers
from .network import EmulatedNetwork, Host, memory_directory
from .orders import (
    Answer,
    Changed,
    Deleted,
    DeleteOrder,
    Failed,
    LinkMeasured,
    Measured,
    MeasureLinkOrder,
    MeasureOrder,
    Order,
    PolicyOrder,
    Ready,
    Uploaded,
    UploadOrder,
    WriteOrder,
    Written,
)

_ROOT = Path(__file__).parents[2]
_STOP_S = 20.0
#: Runs a datanode with a slow disk. The working directory must be the project's root.
SLOW_DATANODE = (sys.executable, "-m", "benchmarks.emulation.slow_datanode")


class WriterProcess:
    """A writer on a host. It answers orders in their sequence."""

    def __init__(self, host: Host, coordinator: str) -> None:
        self.host = host
        self._process = subprocess.Popen(
            [*host.inside(), sys.executable, "-m", "benchmarks.emulation.writer", coordinator],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def order(self, order: Order) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._process.stdin.flush()

    def answer(self) -> Answer:
        assert self._process.stdout is not None
        answer: Answer = msgspec.json.decode(self._process.stdout.readline(), type=Answer)
        if isinstance(answer, Failed):
            raise RuntimeError(f"the writer on {self.host.name} failed: {answer.message}")
        return answer

    def stop(self) -> None:
        self._process.kill()
        # Leaving the stack closes the pipes and waits for the end.
        with self._process:
            pass


class EmulatedCluster:
    """Use as a context manager, inside its network. `disk` is the disk of each datanode.

    `topology` is the description for the coordinator, with hosts' addresses as server names.
    """

    def __init__(self, network: EmulatedNetwork, disk: RateCurve, topology: Topology) -> None:
        self.network = network
        self._disk = disk
        self._topology = topology
        self._members: list[LocalMember] = []
        self._writers: dict[str, WriterProcess] = {}
        self.node_of: dict[str, str] = {}

    @property
    def address(self) -> str:
        readiness = self._members[0].readiness
        return f"http://{readiness.http_host}:{readiness.http_port}"

    @property
    def pids(self) -> list[int]:
        return [*(member.pid for member in self._members), *(writer.pid for writer in self._writers.values())]

    @property
    def topology_file(self) -> Path:
        return self._directory / "topology.toml"

    def start_writers(self, hosts: Sequence[Host]) -> None:
        """Start writers on these hosts, and wait until they are ready."""
        fresh = [WriterProcess(host, self.address) for host in hosts if host.name not in self._writers]
        self._writers |= {writer.host.name: writer for writer in fresh}
        for writer in fresh:
            assert isinstance(writer.answer(), Ready)

    def write(self, orders: Sequence[tuple[Host, WriteOrder]]) -> list[Written]:
        """Run all orders concurrently, each from its own start time. Return their answers in order.

        Raises RuntimeError if an order failed.
        """
        return [answer for answer in self._have(orders) if isinstance(answer, Written)]

    def upload(self, orders: Sequence[tuple[Host, UploadOrder]]) -> list[Uploaded]:
        """Run upload orders like `write`."""
        return [answer for answer in self._have(orders) if isinstance(answer, Uploaded)]

    def _have(self, orders: Sequence[tuple[Host, Order]]) -> list[Answer]:
        for host, order in orders:
            self._writers[host.name].order(order)
        return [self._writers[host.name].answer() for host, _ in orders]

    def delete(self, path: str) -> None:
        writer = self._writers[self.network.hosts[0].name]
        writer.order(DeleteOrder(path))
        assert isinstance(writer.answer(), Deleted)

    def use_policy(self, policy: str) -> None:
        writer = self._writers[self.network.hosts[0].name]
        writer.order(PolicyOrder(policy))
        assert isinstance(writer.answer(), Changed)

    def measure_disk(self, seconds: float) -> Measured:
        """Measure a datanode's disk. All disks are alike."""
        host = self.network.hosts[0]
        writer = self._writers[host.name]
        writer.order(MeasureOrder(self.node_of[host.name], seconds))
        answer = writer.answer()
        assert isinstance(answer, Measured)
        return answer

    def measure_link(self, seconds: float) -> float:
        """Measure the link between the racks as `calibrate` does, in bytes per second each way."""
        one, other = (
            [self.node_of[host.name] for host in self.network.hosts if host.rack == rack]
            for rack in self.network.racks[:2]
        )
        writer = self._writers[self.network.hosts[0].name]
        writer.order(MeasureLinkOrder(one, other, seconds))
        answer = writer.answer()
        assert isinstance(answer, LinkMeasured)
        return answer.bytes_s

    # -- its life ------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._directory = Path(tempfile.mkdtemp(prefix=leftovers.own_name(""), dir=memory_directory()))
        self._parent_pipe = os.pipe()
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self) -> None:
        (self._directory / "secret").write_text(secrets.token_hex(32))
        (self._directory / "secret").chmod(0o600)
        self.topology_file.write_text(to_toml(self._topology))
        coordinator = self._member(self.network.coordinator, self._coordinator_arguments)
        coordinator.await_ready()
        datanodes = [
            self._member(host, self._datanode_arguments(host), SLOW_DATANODE) for host in self.network.hosts
        ]
        for host, datanode in zip(self.network.hosts, datanodes, strict=True):
            datanode.await_ready()
            self.node_of[host.name] = datanode.node

    def _stop(self) -> None:
        for writer in self._writers.values():
            writer.stop()
        for member in self._members:
            member.terminate()
        deadline = time.monotonic() + _STOP_S
        for member in self._members:
            member.await_end(deadline)
            member.kill()
        for end in self._parent_pipe:
            os.close(end)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _member(
        self,
        host: Host,
        arguments: Callable[[MemberReady | None], Sequence[str]],
        program: Sequence[str] = PEACEFS,
    ) -> LocalMember:
        log = self._directory / f"{host.name}.log"
        pipe = self._parent_pipe[0]
        member = LocalMember(host.name, arguments, lambda: log, pipe, (), prefix=host.inside(), program=program)
        member.start()
        self._members.append(member)
        return member

    def _coordinator_arguments(self, before: MemberReady | None) -> Sequence[str]:
        return [
            "coordinator",
            f"--dir={self._directory / 'coordinator'}",
            f"--host={self.network.coordinator.address}",
            "--no-tls",
            f"--secret-file={self._directory / 'secret'}",
            "--authentication=simple",
            f"--topology={self.topology_file}",
        ]

    def _datanode_arguments(self, host: Host) -> Callable[[MemberReady | None], Sequence[str]]:
        def arguments(before: MemberReady | None) -> Sequence[str]:
            curve = ",".join(f"{streams}={rate:.0f}" for streams, rate in self._disk.points)
            return [
                f"--disk={curve}",
                f"--dir={self._directory / host.name}",
                f"--coordinator={self._members[0].readiness.node_host}:{self._members[0].readiness.node_port}",
                f"--host={host.address}",
                f"--secret-file={self._directory / 'secret'}",
                f"--rack={host.rack}",
            ]

        return arguments
