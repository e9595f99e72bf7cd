"""Copies the leader's metadata to a file, over its port for datanodes."""

from __future__ import annotations

from pathlib import Path

from peacefs.coordinator.journal.port import Member
from peacefs.protocol.errors import PeacefsError, ProtocolViolation, from_wire
from peacefs.protocol.handshake import COORDINATOR, Identity
from peacefs.protocol.limits import backup_timeout_s
from peacefs.protocol.messages import CopyStore, Failure, StorePart
from peacefs.protocol.tokens import Signer
from peacefs.runtime import private_files
from peacefs.runtime.connection_handshakes import open_connection
from peacefs.runtime.connections import SocketConnection
from peacefs.runtime.tls import TlsIdentity


class StoreCopying:
    """Talks to the leader as a coordinator that has the cluster's secret."""

    def __init__(self, signer: Signer, tls: TlsIdentity | None) -> None:
        self._signer = signer
        self._tls = tls

    def greet(self, leader: Member, cluster: str) -> None:
        """Prove to the leader that this coordinator has the secret. Raises PeerRefused, PeerError."""
        self._connect(leader, cluster).close()

    def _connect(self, leader: Member, cluster: str) -> SocketConnection:
        host, _, port = leader.node_address.rpartition(":")
        me = Identity(cluster, COORDINATOR, "a coordinator that joins", self._signer)
        name = f"the coordinator {leader.name}"
        return open_connection((host, int(port)), name, me, self._tls, role=COORDINATOR)[0]

    def copy(self, leader: Member, cluster: str, target: Path) -> None:
        """Write a copy to `target`. Raises PeerRefused, PeacefsError."""
        connection = self._connect(leader, cluster)
        try:
            private_files.create_file(target)
            with target.open("r+b") as file:
                at, total = 0, 1
                while at < total:
                    connection.send(CopyStore(at), b"", backup_timeout_s, 1)
                    reply = connection.receive(backup_timeout_s).message
                    if isinstance(reply, Failure):
                        raise from_wire(reply.code, reply.message)
                    if not isinstance(reply, StorePart):
                        raise ProtocolViolation(f"a copy was answered by {type(reply).__name__}")
                    if not reply.data:
                        break
                    file.write(reply.data)
                    at, total = at + len(reply.data), reply.total
                if at != total:
                    raise ProtocolViolation(f"the copy ends after {at} of {total} bytes")
        except OSError as error:
            raise PeacefsError(f"cannot write {target}: {error.strerror or error}") from None
        finally:
            connection.close()
