"""The coordinator's port for datanodes, with everything it needs and nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from support.files_in_memory import context_in_memory
from support.spoken_link import SIGNER, Datanode

from peacefs.coordinator.core import CoordinatorCore
from peacefs.coordinator.failover.leadership import Leadership
from peacefs.coordinator.operations.files import Files
from peacefs.coordinator.operations.queries.supervision import SupervisionService
from peacefs.coordinator.rpc.agent_service import AgentService
from peacefs.coordinator.rpc.coordinator_news import CoordinatorNews
from peacefs.coordinator.rpc.datanode_calls import DatanodeCalls
from peacefs.coordinator.rpc.datanode_links import DatanodeLinks
from peacefs.coordinator.rpc.datanode_service import DatanodeService
from peacefs.coordinator.rpc.node_service import NodeService
from peacefs.coordinator.rpc.server import NodeServer, RunningCalls
from peacefs.coordinator.rpc.store_copies import StoreCopies
from peacefs.protocol.credentials import Credential
from peacefs.protocol.handshake import Identity
from peacefs.protocol.messages import Trust


class _FirstEpoch:
    """The first epoch of a coordinator, of which datanodes have seen nothing."""

    def epoch(self) -> int:
        return 1

    def seen(self, node: str, epoch: int, commit: int = 0) -> None:
        assert epoch <= 1


class NodePort:
    """Use as an async context manager. At the end, the port and all its connections are closed."""

    def __init__(self, core: CoordinatorCore, clock: Callable[[], float]) -> None:
        self._links, calls = DatanodeLinks(), RunningCalls()
        context = context_in_memory(core, self._links, clock)
        files = Files(context)
        supervising = SupervisionService(context, files.fencing, str)
        self._trust = Trust()
        self.leadership = leadership = Leadership.alone()
        self._datanodes = DatanodeService(
            core,
            context.perform,
            self._links,
            files.credentials,
            CoordinatorNews(_FirstEpoch(), leadership, wall_clock=time.time, trust=lambda: self._trust),
            DatanodeCalls(files, leadership, calls.spawn),
            spawn=calls.spawn,
            monotonic=clock,
        )
        agents = AgentService(supervising, leadership, calls.spawn)
        service = NodeService(self._datanodes, agents, StoreCopies(None, calls.spawn))
        me = Identity("c", "coordinator", "coordinator", SIGNER)
        self._server = NodeServer(me, service, self._links, calls, clock)
        self.credentials = files.credentials
        self._port = 0
        self._credentials: dict[str, Credential] = {}
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def waiting(self) -> int:
        """Return the number of links whose datanodes wait to be registered."""
        return self._datanodes.waiting

    def trust(self, trust: Trust) -> None:
        """Verify callers with other keys."""
        self._trust = trust
        self._datanodes.tell_trust()

    def hang_up(self, node: str) -> None:
        self._links.hang_up(node)

    def chunks_loaded(self) -> None:
        self._datanodes.chunks_loaded()

    async def datanode(self, name: str = "dn-1", credential: Credential | None = None) -> Datanode:
        """Connect a datanode that has said nothing yet. Datanodes of one name share a credential by default."""
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
