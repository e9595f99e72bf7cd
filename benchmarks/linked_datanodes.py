"""Datanodes that are only connections: they report chunks that do not exist, over a real datanode link."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from peacefs.datanode.control.coordinator_links import CoordinatorLinks
from peacefs.datanode.control.coordinator_session import Respond
from peacefs.datanode.store.replica_changes import SharedChanges
from peacefs.protocol.credentials import Credential
from peacefs.protocol.handshake import Identity
from peacefs.protocol.messages import (
    AskStreams,
    BalanceDisks,
    DiskBalance,
    DiskReport,
    FlushUploads,
    Granted,
    GrantRefused,
    LatencySample,
    Message,
    Register,
    Replica,
    StreamsFound,
    Trust,
    Usage,
)
from peacefs.protocol.tokens import Signer

ROOMY = Usage(1 << 40, 0, 1 << 40)
#: Receives no new chunks.
FULL = Usage(1 << 40, 1 << 40, 0)


@functools.cache
def _credential(_node: str) -> Credential:
    """Return the credential of a datanode, the same after a reconnection."""
    return Credential.make()


class LinkedDatanode:
    """A datanode that reports chunks and ignores all orders."""

    def __init__(
        self,
        node_ports: Sequence[int],
        cluster: str,
        secret: bytes,
        node: str,
        replicas: Sequence[Replica],
        usage: Usage = ROOMY,
    ) -> None:
        """`node_ports` are the coordinators' ports, on this machine."""
        self._node = node
        self._replicas = replicas
        self._usage = usage
        me = Identity(cluster, "datanode", node, Signer(secret))
        addresses = [("127.0.0.1", port) for port in node_ports]
        self.link = CoordinatorLinks(addresses, me, _credential(node), self, SharedChanges(), 0)

    def registration(self) -> Register:
        return Register(self._node, "127.0.0.1", 1, "127.0.0.1", 1, "/rack", self._usage)

    def replicas(self) -> Sequence[Replica]:
        return self._replicas

    def usage(self) -> Usage:
        return self._usage

    def samples(self) -> Sequence[LatencySample]:
        return ()

    def disks(self) -> Sequence[DiskReport]:
        return ()

    def epoch_seen(self, epoch: int) -> None:
        pass

    def trust_told(self, trust: Trust) -> None:
        pass

    def clock_heard(self, clock_s: float) -> None:
        pass

    def commit_heard(self, commit: int) -> None:
        pass

    def granted(self, message: Granted | GrantRefused) -> None:
        pass

    def streams_found(self, question: AskStreams) -> StreamsFound:
        return StreamsFound(question.chunks, [])

    def balance_disks(self, wanted: BalanceDisks) -> DiskBalance:
        return DiskBalance("", "", 0, 0, 0, 0)

    def flush_uploads(self, wanted: FlushUploads, respond: Respond) -> None:
        pass

    def ordered(self, order: Message, respond: Respond) -> None:
        pass
