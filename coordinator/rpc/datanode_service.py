"""Serves datanodes over their links: registrations, reports and heartbeats."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from peacefs.coordinator.cluster.commands import Order
from peacefs.coordinator.core import Command, CoordinatorCore
from peacefs.coordinator.limits import suspect_after_s
from peacefs.coordinator.operations.credentials import Credentials
from peacefs.protocol.errors import NodeIdTaken, PeacefsError, ProtocolViolation
from peacefs.protocol.messages import (
    Done,
    Heartbeat,
    Message,
    Register,
    ReportAgain,
    ReportChunks,
    Trust,
)

from .coordinator_news import CoordinatorNews
from .datanode_calls import DatanodeCalls
from .datanode_links import DatanodeLink, DatanodeLinks, Spawn
from .dispatch import CALLS_OF_DATANODES

log = logging.getLogger("peacefs.coordinator")


@dataclass(slots=True)
class _Session:
    """A registered link: its registration, and the keys that the datanode was told last."""

    registration: Register
    #: The keys for verifying callers that the datanode was told last. None until a leader has told it: a datanode
    #: ignores a standby's.
    trust: Trust | None


class DatanodeService:
    """Serves datanodes. Used from one event loop only.

    A datanode speaks over the link on which it registered last. The core hears of datanodes only through this
    class.
    """

    def __init__(
        self,
        core: CoordinatorCore,
        perform: Callable[[Iterable[Command]], None],
        links: DatanodeLinks,
        credentials: Credentials,
        news: CoordinatorNews,
        calls: DatanodeCalls,
        *,
        spawn: Spawn,
        monotonic: Callable[[], float],
    ) -> None:
        """`perform` performs the core's commands."""
        self._core = core
        self._perform_commands = perform
        self._links = links
        self._credentials = credentials
        self._news = news
        self._leadership = news.leadership
        self._calls = calls
        self._spawn = spawn
        self._monotonic = monotonic
        #: Links whose datanodes wait to be registered, with their registrations.
        self._to_register: dict[DatanodeLink, tuple[Register, int]] = {}
        self._sessions: dict[DatanodeLink, _Session] = {}

    @property
    def waiting(self) -> int:
        """Return the number of datanodes that wait to be registered."""
        return len(self._to_register)

    def received(self, link: DatanodeLink, message: Message, tag: int) -> None:
        """Serve a message that is no answer. Raises the error with which to close the link."""
        if isinstance(message, Heartbeat):
            self._heartbeat(link, message, tag)
        elif isinstance(message, ReportChunks):
            self._report(link, message, tag)
        elif isinstance(message, Register):
            self._come(link, message, tag)
        elif type(message) in CALLS_OF_DATANODES:
            self._call(link, message, tag)
        else:
            raise ProtocolViolation(f"{type(message).__name__} has no place here")

    def closed(self, link: DatanodeLink) -> None:
        """Forget a connection that has ended."""
        self._links.closed(link)
        self._to_register.pop(link, None)
        self._sessions.pop(link, None)

    # -- registering ---------------------------------------------------------------------------------

    def _come(self, link: DatanodeLink, message: Register, tag: int) -> None:
        """Register a datanode, or let it wait until all chunks are loaded.

        Before that, its replicas would count as unreferenced, which takes several times the memory.
        """
        if self._core.cluster.is_loaded:
            self._register(link, message, tag)
        else:
            self._to_register[link] = message, tag

    def chunks_loaded(self) -> None:
        """Register the datanodes that have waited."""
        waiting, self._to_register = self._to_register, {}
        for link, (message, tag) in waiting.items():
            self._register_late(link, message, tag)

    def _register_late(self, link: DatanodeLink, message: Register, tag: int) -> None:
        """Register a datanode that has waited silently for an answer to its registration."""
        link.heard()
        try:
            self._register(link, message, tag)
        except PeacefsError as error:
            link.refuse(error)

    def _register(self, link: DatanodeLink, message: Register, tag: int) -> None:
        if message.node != link.name:
            raise ProtocolViolation(f"{link.name} registers as {message.node}")
        if not self._credentials.is_enrolled(message, link.transcript):
            self._leadership.refuse_standby()
            self._spawn(self._enrol(link, message, tag))
            return
        self._check_alone(message)
        if self._leadership.leads:
            self._news.epochs.seen(message.node, message.epoch_seen, message.commit_seen)
        self._core.register(self._monotonic(), message)
        self._links.registered(link)
        log.info(
            "datanode %s registered: %s:%d, rack %s",
            message.node,
            message.data_host,
            message.data_port,
            message.rack,
        )
        trust = self._news.trust()
        self._sessions[link] = _Session(message, trust if self._leadership.leads else None)
        link.write(self._news.registered(trust), tag)

    def lead(self) -> None:
        """Tell registered datanodes that this coordinator leads now, after taking in what they have seen."""
        for link, session in list(self._sessions.items()):
            if not self._links.speaks_for_datanode(link):
                continue
            shown = session.registration
            epochs = self._news.epochs
            epochs.seen(shown.node, min(shown.epoch_seen, epochs.epoch() - 1), shown.commit_seen)
            link.write(self._news.acknowledgement(None))

    async def _enrol(self, link: DatanodeLink, message: Register, tag: int) -> None:
        """Give the id to the first datanode that registers with it, because it has the cluster secret."""
        try:
            await self._credentials.enrol(message.node, message.public_key)
        except PeacefsError as error:
            link.refuse(error)
            return
        if not link.is_closing():
            self._register_late(link, message, tag)

    def _check_alone(self, registration: Register) -> None:
        """Raise NodeIdTaken if another process with the same id was heard a moment ago."""
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
        self._perform(self._core.report(self._monotonic(), link.name, message), link)
        link.write(Done(), tag)

    def _heartbeat(self, link: DatanodeLink, message: Heartbeat, tag: int) -> None:
        if not self._links.speaks_for_datanode(link):
            link.write(ReportAgain(), tag)
            return
        self._perform(self._core.heartbeat(self._monotonic(), link.name, message), link)
        if message.stopping:
            log.info("datanode %s is stopping: no more clients are sent to it", link.name)
        if message.streams is not None and self._leadership.leads:
            self._core.scheduling.registered(self._monotonic(), link.name, message.streams)
        self._acknowledge(link, tag)

    def tell_trust(self) -> None:
        """Tell datanodes the present keys for verifying callers. A token may arrive before a heartbeat."""
        if self._leadership.leads:
            for link in list(self._sessions):
                if self._links.speaks_for_datanode(link):
                    self._acknowledge(link, 0)

    def _acknowledge(self, link: DatanodeLink, tag: int) -> None:
        session, changed = self._sessions[link], None
        if self._leadership.leads and session.trust is not (trust := self._news.trust()):
            changed = session.trust = trust
        link.write(self._news.acknowledgement(changed), tag)

    def _perform(self, commands: list[Command], link: DatanodeLink) -> None:
        if commands and self._leadership.leads:
            self._perform_commands(commands)
        elif any(isinstance(command, Order) and isinstance(command.message, ReportAgain) for command in commands):
            # The answer does not depend on who leads, so a standby may ask, too.
            link.write(ReportAgain())

    # -- calls ---------------------------------------------------------------------------------------

    def _call(self, link: DatanodeLink, message: Message, tag: int) -> None:
        if not self._links.speaks_for_datanode(link):
            raise ProtocolViolation(f"{link.name} asks before it has registered")
        self._calls.received(link, message, tag, self._sessions[link].registration.data_host)
