"""A whole cluster on this machine: one coordinator and some datanodes in two racks, as processes.

`peacefs up`, the demo and the tests use it. It owns the processes from `start` to `stop`. They all end with the
process that started them, even if that is killed by SIGKILL (`member_process` explains how).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from peacefs.client.control.addresses import CoordinatorAddress
from peacefs.client.limits import local_stop_timeout_s
from peacefs.protocol.errors import StartupError
from peacefs.protocol.limits import coordinator_http_port_default, coordinator_node_port_default

from .directory import ClusterDirectory
from .etcd_process import find_etcd
from .member_arguments import CERTIFICATES, LOCAL_HOST, MemberArguments, secret_file_in
from .member_process import LocalMember, MemberReady
from .reserved_ports import ReservedPorts


class LocalCluster:
    """Starts and stops the members. Use as a context manager, or call `start` and `stop`. Not thread-safe.

    `datanodes` None means as many as the directory has; `local_datanodes_default` if it is new. `port` is the
    coordinator's HTTP port, 0 for a free one. `node_port` is its port for agents and datanodes: 0 for a free one,
    None for the port of the previous run (in a new directory the default port, or a free one if `port` is 0).
    Datanodes take two ports each from `datanode_port`, or free ones if it is 0. `coordinator_options` are passed
    to `peacefs coordinator`. With `tls`, all traffic is encrypted, with certificates of the cluster's own CA. With
    `standby`, there are two coordinators, and an etcd for their journal. A member that dies is started again only
    by `restart` or by a `MemberSupervisor`.
    """

    def __init__(
        self,
        directory: Path,
        datanodes: int | None = None,
        port: int = coordinator_http_port_default,
        datanode_port: int = 0,
        coordinator_options: Sequence[str] = (),
        *,
        tls: bool = False,
        node_port: int | None = 0,
        standby: bool = False,
    ) -> None:
        self._path = directory
        self._wants_standby = standby
        self._etcd: LocalMember | None = None
        self._standby: LocalMember | None = None
        self._wanted_datanodes = datanodes
        self._port = port
        self._datanode_port = datanode_port
        self._coordinator_options = coordinator_options
        self._tls = tls
        self._node_port = node_port
        self._claimed: ClusterDirectory | None = None
        self._parent_pipe: tuple[int, int] | None = None
        self._reserved = ReservedPorts(LOCAL_HOST)
        self._coordinator: LocalMember | None = None
        self.datanodes: list[LocalMember] = []

    # -- members and addresses -----------------------------------------------------------------------

    @property
    def coordinator(self) -> LocalMember:
        assert self._coordinator is not None, "the cluster is not running"
        return self._coordinator

    @property
    def members(self) -> list[LocalMember]:
        return [self.coordinator, *self._beside_coordinator(), *self.datanodes]

    @property
    def standby(self) -> LocalMember | None:
        """The second coordinator. Either coordinator may be the leader."""
        return self._standby

    @property
    def etcd(self) -> LocalMember | None:
        """The etcd that stores the coordinators' journal."""
        return self._etcd

    def _beside_coordinator(self) -> list[LocalMember]:
        return [member for member in (self._standby, self._etcd) if member is not None]

    @property
    def directory(self) -> Path:
        assert self._claimed is not None, "the cluster is not running"
        return self._claimed.path

    @property
    def address(self) -> CoordinatorAddress:
        readiness = self.coordinator.readiness
        return CoordinatorAddress(readiness.http_host, readiness.http_port, self._tls)

    @property
    def ca_file(self) -> Path | None:
        """The CA for `PeaceFileSystem` and `--ca-file`; None without TLS."""
        return self.directory / CERTIFICATES / "ca.pem" if self._tls else None

    @property
    def truststore(self) -> Path | None:
        """The trust store for Java; None without TLS."""
        return self.directory / CERTIFICATES / "truststore.p12" if self._tls else None

    @property
    def http_address(self) -> str:
        """The address for `PeaceFileSystem` and `--coordinator`."""
        return self.address.http

    @property
    def node_address(self) -> str:
        """The `--coordinator` of agents and additional datanodes."""
        coordinators = [self.coordinator, *([self._standby] if self._standby else [])]
        return ",".join(f"{each.readiness.node_host}:{each.readiness.node_port}" for each in coordinators)

    @property
    def secret_file(self) -> Path:
        """The `--secret-file` of agents and additional datanodes."""
        return secret_file_in(self.directory)

    @property
    def webhdfs_uri(self) -> str:
        """The URI prefix for Spark; a path follows it directly."""
        return self.address.webhdfs

    @property
    def hdfs_uri(self) -> str:
        """The URI prefix for HDFS clients; a path follows it directly."""
        readiness = self.coordinator.readiness
        return f"hdfs://{readiness.http_host}:{readiness.hdfs_port}"

    # -- start and stop ------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start all members and wait until they are ready.

        Raises StartupError, and stops all, if one fails or makes no progress for `local_start_timeout_s`.
        """
        self.begin()
        try:
            for datanode in self.datanodes:
                datanode.await_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def begin(self) -> None:
        """Start all members, but wait only for the coordinator.

        Raises StartupError if the coordinator does not start. All members are stopped then.
        """
        assert self._claimed is None, "the cluster is running"
        self._claimed = ClusterDirectory.claim(self._path, self._wanted_datanodes)
        try:
            if self._node_port is None:
                usual = coordinator_node_port_default if self._port else 0
                self._node_port = self._claimed.node_port or usual
            if self._tls:
                self._make_certificates()
            arguments = MemberArguments(
                self._claimed,
                self._reserved,
                port=self._port,
                node_port=self._node_port,
                datanode_port=self._datanode_port,
                tls=self._tls,
            )
            self._parent_pipe = os.pipe()
            if self._wants_standby:
                self._start_etcd(arguments)
            self._coordinator = self._member(
                "coordinator", lambda before: self._of_coordinators(arguments.coordinator(before))
            )
            self._coordinator.start()
            self._claimed.keep_node_port(self._coordinator.await_ready().node_port)
            if self._wants_standby:
                self._standby = self._member(
                    "standby", lambda before: self._of_coordinators(arguments.standby(before))
                )
                self._standby.start()
                self._standby.await_ready()
            for number in range(1, self._claimed.datanodes + 1):
                datanode = self._member(f"datanode-{number}", self._of_datanode(arguments, number))
                self.datanodes.append(datanode)
                datanode.start()
        except BaseException:
            self.stop()
            raise

    def restart(self, member: LocalMember) -> None:
        """Start an ended member with its data and ports, and wait until it is ready. Raises StartupError."""
        member.start()
        member.await_ready()

    def stop(self) -> None:
        """Stop all members: ask them first, then kill those that are too slow. May be called twice."""
        members = [
            *self.datanodes,
            *([self._coordinator] if self._coordinator else []),
            *self._beside_coordinator(),
        ]
        deadline = time.monotonic() + local_stop_timeout_s
        try:
            # A coordinator that ends writes to the journal in etcd, so etcd is stopped last.
            for those in ([each for each in members if each is not self._etcd], members):
                for member in those:
                    member.terminate()
                for member in those:
                    member.await_end(deadline)
        finally:
            # Also if a second Ctrl-C interrupts the wait.
            for member in members:
                member.kill()
            self._forget()

    def _forget(self) -> None:
        self._coordinator = self._standby = self._etcd = None
        self.datanodes = []
        if self._parent_pipe is not None:
            for end in self._parent_pipe:
                os.close(end)
            self._parent_pipe = None
        self._reserved.release()
        if self._claimed is not None:
            self._claimed.release()
            self._claimed = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- how members are started -----------------------------------------------------------------------

    def _member(self, name: str, arguments: Callable[[MemberReady | None], Sequence[str]]) -> LocalMember:
        claimed, pipe = self._claimed, self._parent_pipe
        assert claimed is not None
        assert pipe is not None
        return LocalMember(name, arguments, lambda: claimed.new_log(name), pipe[0], [claimed.lock_descriptor])

    def _start_etcd(self, arguments: MemberArguments) -> None:
        assert self._claimed is not None
        assert self._parent_pipe is not None
        if find_etcd() is None:
            raise StartupError(
                "a standby needs etcd, which is neither beside this Python nor on the PATH: on Debian "
                "`apt-get install etcd-server`, or run `make setup` again"
            )
        claimed = self._claimed
        self._etcd = LocalMember(
            "etcd",
            arguments.etcd,
            lambda: claimed.new_log("etcd"),
            self._parent_pipe[0],
            [claimed.lock_descriptor],
            program=(sys.executable, "-P", "-m", "peacefs.client.local_cluster.etcd_process"),
        )
        self._etcd.start()
        self._etcd.await_ready()

    def _of_datanode(
        self, arguments: MemberArguments, number: int
    ) -> Callable[[MemberReady | None], Sequence[str]]:
        return lambda before: arguments.datanode(number, before, self.node_address)

    def _of_coordinators(self, arguments: Sequence[str]) -> Sequence[str]:
        """Return the arguments of a coordinator, including its journal and the requested options."""
        journal = [] if self._etcd is None else [f"--journal=etcd://{LOCAL_HOST}:{self._etcd.readiness.http_port}"]
        return [*arguments, *journal, *self._coordinator_options]

    def _make_certificates(self) -> None:
        """Make a CA at the first start, and a certificate at each."""
        # Imported here, because a cluster without TLS does not need it.
        from .trial_certificates import TrialAuthority

        TrialAuthority(self.directory / CERTIFICATES).issue([LOCAL_HOST])
