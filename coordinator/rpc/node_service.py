"""Routes what comes over a link to whoever serves it: datanodes, agents, or another coordinator.

Knows no socket and no event loop: the service brings messages from connections, the simulated world its own.
"""

from __future__ import annotations

from peacefs.protocol.handshake import COORDINATOR
from peacefs.protocol.messages import AgentBeat, Message

from .agent_service import AgentService
from .datanode_links import DatanodeLink
from .datanode_service import DatanodeService
from .store_copies import StoreCopies


class NodeService:
    """Serves all links that are not a client's. Used from one event loop only."""

    def __init__(self, datanodes: DatanodeService, agents: AgentService, copies: StoreCopies) -> None:
        self._datanodes = datanodes
        self._agents = agents
        self._copies = copies

    def received(self, link: DatanodeLink, message: Message, tag: int) -> None:
        """Serve a message that is no answer. Raises what the link is to be closed with."""
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
