"""Routes messages from links to whoever serves them: for datanodes, agents, or another coordinator.

Knows neither sockets nor event loops. The service and the simulation both use it.
"""

from __future__ import annotations

from peacefs.protocol.handshake import COORDINATOR
from peacefs.protocol.messages import AgentBeat, Message

from .agent_service import AgentService
from .datanode_links import DatanodeLink
from .datanode_service import DatanodeService
from .store_copies import StoreCopies


class NodeService:
    """Serves all links except clients'. Used from one event loop only."""

    def __init__(self, datanodes: DatanodeService, agents: AgentService, copies: StoreCopies) -> None:
        self._datanodes = datanodes
        self._agents = agents
        self._copies = copies

    def received(self, link: DatanodeLink, message: Message, tag: int) -> None:
        """Serve a message that is no answer. Raises the error with which to close the link."""
        if link.role == COORDINATOR:
            self._copies.received(link, message, tag)
        elif link.role == "agent" or isinstance(message, AgentBeat):
            self._agents.received(link, message, tag)
        else:
            self._datanodes.received(link, message, tag)

    def closed(self, link: DatanodeLink) -> None:
        """Forget a connection that has ended."""
        self._datanodes.closed(link)
        self._copies.closed(link)
