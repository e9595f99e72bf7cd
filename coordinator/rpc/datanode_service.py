"""Serves datanodes and agents over their links: registrations, reports, heartbeats, calls and beats.

Knows no socket and no event loop: the service brings messages from connections, the simulated world its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from peacefs.coordinator.cluster.commands import Order
from peacefs.coordinator.core import Command
from peacefs.coordinator.failover.leadership import Leadership
from peacefs.coordinator.limits import suspect_after_s
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.files import Files
from peacefs.coordinator.operations.supervision import SupervisionService
from peacefs.protocol.errors import NodeIdTaken, PeacefsError, ProtocolViolation, ServiceUnready, Standby
from peacefs.protocol.handshake import COORDINATOR
from peacefs.protocol.ids import NodeId
from peacefs.protocol.messages import (
    AgentBeat,
    CopyStore,
    Done,
    Failure,
    Heartbeat,
    HeartbeatAck,
    Message,
    Register,
    Registered,
    ReportAgain,
    ReportChunks,
    Trust,
)

from .audited_calls import AuditedRpc
from .datanode_links import DatanodeLink, DatanodeLinks
from .dispatch import CALLS_OF_DATANODES, answer, is_read
from .store_copies import MakeCopy, StoreCopies

log = logging.getLogger("peacefs.coordinator")


class ServedEpoch(Protocol):
    """The epoch that datanodes are told, and what is made of what they have seen: `EpochService`."""

    def epoch(self) -> int: ...
    def seen(self, node: NodeId, epoch: int, commit: int = 0) -> None: ...


@dataclass(slots=True)
class _Session:
    """A link that has registered: what it said then, and the keys that it was told last."""

    registration: Register
    trust: Trust


class DatanodeService:
    """Serves datanodes and agents. Used from one event loop only."""

    def __init__(
        self,
        context: OperationContext,
        links: DatanodeLinks,
        files: Files,
        supervising: SupervisionService,
        epochs: ServedEpoch,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        durable_commit: Callable[[], int] = lambda: 0,
        trust: Callable[[], Trust] = Trust,
        audited: AuditedRpc | None = None,
        leadership: Leadership | None = None,
        make_copy: MakeCopy | None = None,
    ) -> None:
        """`spawn` runs a request that may wait, or raises Overloaded. `durable_commit` gives the last commit.

        `trust` gives what gateways verify their callers with: the same object until it changes.
        """
        self._at = context
        self._core = context.core
        self._links = links
        self._files = files
        self._supervision_service = supervising
        self._epochs = epochs
        self._spawn = spawn
        self._durable_commit = durable_commit
        self._trust = trust
        self._audited = audited
        self._leadership = leadership or Leadership.alone()
        self._copies = StoreCopies(make_copy)
        #: Links on which datanodes wait to be registered, with what they said.
        self._to_register: dict[DatanodeLink, tuple[Register, int]] = {}
        self._sessions: dict[DatanodeLink, _Session] = {}

    @property
    def waiting(self) -> int:
        """Count the links whose datanodes wait to be registered."""
        return len(self._to_register)

    def received(self, link: DatanodeLink, message: Message, tag: int) -> None:
        """A message that is no answer has come over a link. Raises what the link is to be closed with."""
        if link.role == COORDINATOR:
            self._give_copy(link, message, tag)
        elif link.role == "agent" or isinstance(message, AgentBeat):
            self._hear_agent(link, message, tag)
        elif isinstance(message, Heartbeat):
            self._heartbeat(link, message, tag)
        elif isinstance(message, ReportChunks):
            self._report(link, message, tag)
        elif isinstance(message, Register):
            self._come(link, message, tag)
        elif isinstance(message, CALLS_OF_DATANODES):
            self._call(link, message, tag)
        else:
            raise ProtocolViolation(f"{type(message).__name__} has no place here")

    def closed(self, link: DatanodeLink) -> None:
        """A connection has ended."""
        self._links.closed(link)
        self._copies.closed(link)
        self._to_register.pop(link, None)
        self._sessions.pop(link, None)

    # -- registering ---------------------------------------------------------------------------------

    def _come(self, link: DatanodeLink, message: Register, tag: int) -> None:
        """A datanode that comes while the chunks are still being loaded waits until they all are.

        What it holds would be taken for unreferenced until then: at several times the memory, which stays lost.
        """
        if self._core.cluster.is_loaded:
            self._register(link, message, tag)
        else:
            self._to_register[link] = message, tag

    def chunks_loaded(self) -> None:
        """Registers the datanodes that have waited."""
        waiting, self._to_register = self._to_register, {}
        for link, (message, tag) in waiting.items():
            self._register_late(link, message, tag)

    def _register_late(self, link: DatanodeLink, message: Register, tag: int) -> None:
        """Register a datanode that asked for it a while ago, and has been silent since for want of an answer."""
        link.heard()
        try:
            self._register(link, message, tag)
        except PeacefsError as error:
            link.refuse(error)

    def _register(self, link: DatanodeLink, message: Register, tag: int) -> None:
        if message.node != link.name:
            raise ProtocolViolation(f"{link.name} registers as {message.node}")
        if not self._files.credentials.is_enrolled(message, link.transcript):
            self._leadership.refuse_standby()
            self._spawn(self._enrol(link, message, tag))
            return
        self._check_alone(message)
        if self._leadership.leads:
            self._epochs.seen(message.node, message.epoch_seen, message.commit_seen)
        self._core.register(self._at.monotonic(), message)
        self._links.registered(link)
        log.info(
            "datanode %s registered: %s:%d, rack %s",
            message.node,
            message.data_host,
            message.data_port,
            message.rack,
        )
        session = self._sessions[link] = _Session(message, self._trust())
        leads = self._leadership.leads
        epoch = self._epochs.epoch() if leads else self._leadership.epoch
        link.write(Registered(epoch, self._at.wall_clock(), session.trust, leads), tag)

    def lead(self) -> None:
        """Tell the datanodes that are here that this coordinator leads now, by what they showed when they came."""
        for link, session in list(self._sessions.items()):
            if not self._links.speaks_for_datanode(link):
                continue
            shown = session.registration
            self._epochs.seen(shown.node, min(shown.epoch_seen, self._epochs.epoch() - 1), shown.commit_seen)
            link.write(
                HeartbeatAck(self._epochs.epoch(), self._at.wall_clock(), self._durable_commit(), None, True)
            )

    async def _enrol(self, link: DatanodeLink, message: Register, tag: int) -> None:
        """The first registration under an id, which the cluster secret allows: it gets the id."""
        try:
            await self._files.credentials.enrol(message.node, message.public_key)
        except PeacefsError as error:
            link.refuse(error)
            return
        if not link.is_closing():
            self._register_late(link, message, tag)

    def _check_alone(self, registration: Register) -> None:
        """Raises NodeIdTaken when another process with the same id has been heard a moment ago."""
        other = self._links.get(registration.node)
        if other is None or other.silence_s() >= suspect_after_s:
            return
        if self._sessions[other].registration.process == registration.process:
            return
        raise NodeIdTaken(
            f"the datanode at {other.peer_name} has the id {registration.node}, too, and is here: is the "
            "directory a copy of another datanode's? Start each datanode on a directory of its own"
        )

    # -- reports and heartbeats ----------------------------------------------------------------------

    def _report(self, link: DatanodeLink, message: ReportChunks, tag: int) -> None:
        if not self._links.speaks_for_datanode(link):
            link.write(ReportAgain(), tag)
            return
        self._perform(self._core.report(self._at.monotonic(), link.name, message), link)
        link.write(Done(), tag)

    def _heartbeat(self, link: DatanodeLink, message: Heartbeat, tag: int) -> None:
        if not self._links.speaks_for_datanode(link):
            link.write(ReportAgain(), tag)
            return
        self._perform(self._core.heartbeat(self._at.monotonic(), link.name, message), link)
        if message.stopping:
            log.info("datanode %s is being stopped: nobody is led to it any more", link.name)
        if message.streams is not None and self._leadership.leads:
            self._core.scheduling.registered(self._at.monotonic(), link.name, message.streams)
        self._acknowledge(link, tag)

    def tell_trust(self) -> None:
        """Tell datanodes at once what callers are verified with now: a token may reach them before a heartbeat."""
        if self._leadership.leads:
            for link in list(self._sessions):
                if self._links.speaks_for_datanode(link):
                    self._acknowledge(link, 0)

    def _acknowledge(self, link: DatanodeLink, tag: int) -> None:
        session, trust = self._sessions[link], self._trust()
        changed, session.trust = None if trust is session.trust else trust, trust
        leads = self._leadership.leads
        # The number of a commit is for the leader to say.
        epoch, commit = (self._epochs.epoch(), self._durable_commit()) if leads else (self._leadership.epoch, 0)
        ack = HeartbeatAck(epoch, self._at.wall_clock(), commit, changed, leads)
        link.write(ack, tag)

    def _perform(self, commands: list[Command], link: DatanodeLink) -> None:
        if commands and self._leadership.leads:
            self._at.perform(commands)
        elif any(isinstance(command, Order) and isinstance(command.message, ReportAgain) for command in commands):
            # It says nothing about who leads, so that a standby may ask for it as well.
            link.write(ReportAgain())

    # -- calls ---------------------------------------------------------------------------------------

    def _call(self, link: DatanodeLink, message: Message, tag: int) -> None:
        if not self._links.speaks_for_datanode(link):
            raise ProtocolViolation(f"{link.name} asks before it has registered")
        try:
            self._leadership.refuse_standby()
            host = self._sessions[link].registration.data_host
            self._spawn(self._answer_call(link, message, tag, host))
        except ServiceUnready as error:
            link.write(Failure(error.code, error.message), tag)

    async def _answer_call(self, link: DatanodeLink, message: Message, tag: int, host: str) -> None:
        reply = await answer(self._files, message, host, link.name, link=link.name, audited=self._audited)
        try:
            if is_read(message):
                # Others may have led while this process was stopped.
                self._leadership.refuse_standby()
        except ServiceUnready as error:
            reply = Failure(error.code, error.message)
        _reply_late(link, reply, tag)

    def _give_copy(self, link: DatanodeLink, message: Message, tag: int) -> None:
        """Another coordinator copies the metadata, and says nothing else."""
        if not isinstance(message, CopyStore):
            raise ProtocolViolation(f"{type(message).__name__} is nothing for a coordinator to say")
        self._spawn(self._answer_copy(link, message, tag))

    async def _answer_copy(self, link: DatanodeLink, message: CopyStore, tag: int) -> None:
        try:
            reply: Message = await asyncio.to_thread(self._copies.part, link, message.offset)
        except PeacefsError as error:
            reply = Failure(error.code, error.message)
        if link.is_closing():
            self._copies.closed(link)
        _reply_late(link, reply, tag)

    def _hear_agent(self, link: DatanodeLink, message: Message, tag: int) -> None:
        """An agent speaks of the queries that it runs and of nothing else, and under its own name."""
        if link.role != "agent" or not isinstance(message, AgentBeat) or message.agent != link.name:
            raise ProtocolViolation(f"{type(message).__name__} is nothing for {link.role} {link.name} to say")
        if not self._leadership.leads:
            link.write(Failure(Standby.__name__, "this coordinator stands by, another one leads"), tag)
            return
        self._spawn(self._answer_agent(link, message, tag))

    async def _answer_agent(self, link: DatanodeLink, beat: AgentBeat, tag: int) -> None:
        try:
            reply: Message = await self._supervision_service.heard(beat, link.version)
        except PeacefsError as error:
            reply = Failure(error.code, error.message)
        _reply_late(link, reply, tag)


def _reply_late(link: DatanodeLink, reply: Message, tag: int) -> None:
    """The connection, and the loop, may have been closed meanwhile."""
    with contextlib.suppress(RuntimeError):
        link.write(reply, tag)
