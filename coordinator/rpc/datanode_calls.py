"""Answers calls that datanodes make as clients, for the files that their gateways write and read."""

from __future__ import annotations

from peacefs.coordinator.failover.leadership import Leadership
from peacefs.coordinator.operations.files import Files
from peacefs.protocol.errors import ServiceUnready
from peacefs.protocol.messages import Failure, Message

from .audited_calls import AuditedRpc
from .datanode_links import DatanodeLink, Spawn, reply_late
from .dispatch import answer, is_read


class DatanodeCalls:
    """Answers datanodes' calls. Used from one event loop only."""

    def __init__(
        self, files: Files, leadership: Leadership, spawn: Spawn, audited: AuditedRpc | None = None
    ) -> None:
        self._files = files
        self._leadership = leadership
        self._spawn = spawn
        self._audited = audited

    def received(self, link: DatanodeLink, message: Message, tag: int, host: str) -> None:
        """Begin to answer a call from `host`. Refuse it if this coordinator stands by or is overloaded."""
        try:
            self._leadership.refuse_standby()
            self._spawn(self._answer(link, message, tag, host))
        except ServiceUnready as error:
            link.write(Failure(error.code, error.message), tag)

    async def _answer(self, link: DatanodeLink, message: Message, tag: int, host: str) -> None:
        reply = await answer(self._files, message, host, link.name, audited=self._audited)
        try:
            if is_read(message):
                # Another coordinator may have led while this process was stopped.
                self._leadership.refuse_standby()
        except ServiceUnready as error:
            reply = Failure(error.code, error.message)
        reply_late(link, reply, tag)
