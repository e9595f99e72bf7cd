"""Serves agents over their links: answers each beat with the runs that the agent must have."""

from __future__ import annotations

from peacefs.coordinator.failover.leadership import Leadership
from peacefs.coordinator.operations.queries.supervision import SupervisionService
from peacefs.protocol.errors import PeacefsError, ProtocolViolation, Standby
from peacefs.protocol.messages import AgentBeat, Failure, Message

from .datanode_links import DatanodeLink, Spawn, reply_late


class AgentService:
    """Serves agents. Used from one event loop only."""

    def __init__(self, supervising: SupervisionService, leadership: Leadership, spawn: Spawn) -> None:
        self._supervision_service = supervising
        self._leadership = leadership
        self._spawn = spawn

    def received(self, link: DatanodeLink, message: Message, tag: int) -> None:
        """Accept an agent's message about its own queries, under its own name. Refuse others."""
        if link.role != "agent" or not isinstance(message, AgentBeat) or message.agent != link.name:
            raise ProtocolViolation(f"{link.role} {link.name} may not send {type(message).__name__}")
        if not self._leadership.leads:
            link.write(Failure(Standby.__name__, "this coordinator stands by, another one leads"), tag)
            return
        self._spawn(self._answer(link, message, tag))

    async def _answer(self, link: DatanodeLink, beat: AgentBeat, tag: int) -> None:
        try:
            reply: Message = await self._supervision_service.heard(beat, link.version)
        except PeacefsError as error:
            reply = Failure(error.code, error.message)
        reply_late(link, reply, tag)
