"""The coordinator's port for HDFS clients."""

from __future__ import annotations

import asyncio
from typing import Final

from .addresses import Addresses
from .connection import HdfsConnection
from .connections import Connections, strangers_max

addresses_refreshed_s: Final = 1.0


class HdfsServer:
    """The listening server for HDFS clients. Use it from one event loop only."""

    def __init__(self, connections: Connections, addresses: Addresses) -> None:
        self._connections = connections
        self._addresses = addresses
        self._server: asyncio.Server | None = None
        self._refreshing: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: HdfsConnection(self._connections), host, port, backlog=strangers_max
        )
        self._refreshing = loop.create_task(self._refresh_addresses())
        return int(self._server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._refreshing is not None:
            self._refreshing.cancel()
        self._connections.stop()

    async def _refresh_addresses(self) -> None:
        members = self._connections.served.cluster.members
        while True:
            await self._addresses.look_up(node.registration.data_host for node in members.all())
            await asyncio.sleep(addresses_refreshed_s)
