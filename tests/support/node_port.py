"""The coordinator's port for datanodes, with all that it needs behind it and nothing beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from support.files_in_memory import files_in_memory
from support.spoken_link import SIGNER, Datanode

from peacefs.coordinator.cluster.core import Cluster
from peacefs.coordinator.operations.credentials import Credentials
from peacefs.coordinator.rpc.server import NodeServer
from peacefs.protocol.credentials import Credential
from peacefs.protocol.handshake import Identity


class NodePort:
    """Use as an async context manager: however the test ends, the port and all connections to it are closed."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float]) -> None:
        self._server = NodeServer(
            Identity("c", "coordinator", "coordinator", SIGNER),
            cluster,
            epoch=lambda: 1,
            on_epoch_seen=lambda _node, _epoch, _commit: None,
            clock=clock,
        )
        self._server.files = files_in_memory(cluster)
        self._port = 0
        self._credentials: dict[str, Credential] = {}
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def waiting(self) -> int:
        """How many links have datanodes that wait to be registered."""
        return len(self._server._to_register)

    @property
    def credentials(self) -> Credentials:
        return self._server.files.credentials

    def hang_up(self, node: str) -> None:
        self._server.hang_up(node)

    def chunks_loaded(self) -> None:
        self._server.chunks_loaded()

    async def datanode(self, name: str = "dn-1", credential: Credential | None = None) -> Datanode:
        """One that has connected and said nothing yet; of each name all have one credential, or this one."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(writer)
        kept = self._credentials.setdefault(name, Credential.make())
        return Datanode(reader, writer, name=name, credential=credential or kept)

    async def __aenter__(self) -> Self:
        self._port = await self._server.start("127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.stop()
        for writer in self._writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
