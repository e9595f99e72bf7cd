"""The command lines of the members of a local cluster: directories, ports, certificates and addresses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from peacefs.protocol.limits import coordinator_hdfs_port_default

from .directory import ClusterDirectory
from .member_process import MemberReady
from .reserved_ports import ReservedPorts

LOCAL_HOST: Final = "127.0.0.1"
#: The subdirectory with the CA and the members' certificate.
CERTIFICATES: Final = "certificates"


def secret_file_in(directory: Path) -> Path:
    """Return the path of the coordinator's secret in a cluster's directory."""
    return directory / "coordinator" / "cluster.secret"


class MemberArguments:
    """Makes the command lines of members, for `LocalCluster`. A restarted member keeps its ports."""

    def __init__(
        self,
        claimed: ClusterDirectory,
        reserved: ReservedPorts,
        *,
        port: int,
        node_port: int,
        datanode_port: int,
        tls: bool,
    ) -> None:
        """`port` and `node_port` are the coordinator's, `datanode_port` the first datanode's. 0 means any port."""
        self._claimed = claimed
        self._reserved = reserved
        self._port = port
        self._node_port = node_port
        self._datanode_port = datanode_port
        self._tls = tls

    def etcd(self, before: MemberReady | None) -> Sequence[str]:
        port, peer_port = (
            (before.http_port, before.node_port) if before else (self._reserved.take(), self._reserved.take())
        )
        return [f"--dir={self._claimed.member('etcd')}", f"--port={port}", f"--peer-port={peer_port}"]

    def coordinator(self, before: MemberReady | None) -> Sequence[str]:
        return [
            "coordinator",
            f"--dir={self._claimed.member('coordinator')}",
            f"--host={LOCAL_HOST}",
            f"--port={before.http_port if before else self._port or self._reserved.take()}",
            f"--node-port={before.node_port if before else self._node_port or self._reserved.take()}",
            f"--hdfs-port={before.hdfs_port if before else self._hdfs_port()}",
            *self._tls_options(),
        ]

    def _hdfs_port(self) -> int:
        """Return HDFS's usual port if the cluster has fixed ports and it is free; otherwise any free port."""
        return self._reserved.take_or_any(coordinator_hdfs_port_default) if self._port else self._reserved.take()

    def standby(self, before: MemberReady | None) -> Sequence[str]:
        return [
            "coordinator",
            f"--dir={self._claimed.member('standby')}",
            f"--host={LOCAL_HOST}",
            f"--port={before.http_port if before else self._reserved.take()}",
            f"--node-port={before.node_port if before else self._reserved.take()}",
            f"--hdfs-port={before.hdfs_port if before else self._reserved.take()}",
            f"--secret-file={secret_file_in(self._claimed.path)}",
            *self._tls_options(),
        ]

    def datanode(self, number: int, before: MemberReady | None, coordinators: str) -> Sequence[str]:
        """Return a datanode's options. `coordinators` are the addresses of their ports for datanodes."""
        if before:
            port, data_port = before.http_port, before.data_port
        elif self._datanode_port:
            port = self._datanode_port + 2 * (number - 1)
            data_port = port + 1
        else:
            port, data_port = self._reserved.take(), self._reserved.take()
        return [
            "datanode",
            f"--dir={self._claimed.member(f'datanode-{number}')}",
            f"--coordinator={coordinators}",
            f"--secret-file={secret_file_in(self._claimed.path)}",
            # Alternate the racks, so that existing datanodes keep theirs when the cluster grows.
            f"--rack=/rack-{2 - number % 2}",
            f"--host={LOCAL_HOST}",
            *self._tls_options(),
            f"--port={port}",
            f"--data-port={data_port}",
            f"--hdfs-port={before.hdfs_port if before else 0}",
        ]

    def _tls_options(self) -> list[str]:
        if not self._tls:
            return []
        where = self._claimed.path / CERTIFICATES
        return [
            f"--tls-certificate={where / LOCAL_HOST}.pem",
            f"--tls-key={where / LOCAL_HOST}-key.pem",
            f"--tls-ca={where / 'ca.pem'}",
        ]
