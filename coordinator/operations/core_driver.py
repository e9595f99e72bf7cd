"""Performs the core's commands: the only place where a decision becomes a message, a permit or a log line.

The service and the simulation drive the core through this module. They differ in their `DatanodeSender`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Set
from typing import Any, Protocol

from peacefs.coordinator.cluster.commands import Order
from peacefs.coordinator.cluster.membership import State, Transition
from peacefs.coordinator.cluster.possession import Question
from peacefs.coordinator.cluster.repair import ReplicaCopy
from peacefs.coordinator.cluster.slow_peers import Slowness, SlowPart
from peacefs.coordinator.core import BecameReady, Command, CoordinatorCore, Served
from peacefs.coordinator.scheduling.write_sets import Push, Refuse
from peacefs.protocol.errors import NoDatanodes
from peacefs.protocol.ids import NodeId, show
from peacefs.protocol.messages import Done, Failure, Granted, GrantRefused, Message, ReplicateChunk

from .chunk_permits import ChunkPermits
from .waiters import Wait, Waiters

log = logging.getLogger("peacefs.coordinator")


class DatanodeSender(Protocol):
    """Sends messages to datanodes over their connections."""

    def send(self, node: NodeId, message: Message, /) -> None:
        """Send a message. It is lost if the datanode is not connected; the datanode's next report settles the
        difference.
        """

    def ask(self, node: NodeId, message: Message, answered: Callable[[Message], None], /) -> None:
        """Send a message. Call `answered` once, with the reply, or with a Failure if there will be no reply."""


class CoreDriver:
    """Performs commands on the event loop. `on_waited` gets the seconds that each grant's write set had waited."""

    def __init__(
        self,
        core: CoordinatorCore,
        links: DatanodeSender,
        permits: ChunkPermits,
        monotonic: Callable[[], float],
        on_waited: Callable[[float], object],
        wait: Wait,
    ) -> None:
        self._core = core
        self._links = links
        self._permits = permits
        self._monotonic = monotonic
        self._on_waited = on_waited
        #: Writers that wait for a grant, and readers that wait for permits, by the name of their set.
        self.grants_awaited = Waiters(wait)
        self.reads_awaited = Waiters(wait)
        self._performers: dict[type[Any], Callable[[Any], None]] = {
            Order: self._send,
            Question: self._ask_for_proof,
            ReplicaCopy: self._start_copy,
            Push: self._tell_grant,
            Refuse: self._tell_refusal,
            Served: self._tell_reader,
            Transition: _log_transition,
            Slowness: _log_slowness,
            BecameReady: _log_readiness,
        }

    @property
    def kinds(self) -> Set[type[Any]]:
        """The kinds of commands that this driver performs."""
        return self._performers.keys()

    def perform(self, commands: Iterable[Command]) -> None:
        """Perform the commands of an event, before the next event."""
        for command in commands:
            self._performers[type(command)](command)

    def _send(self, order: Order) -> None:
        self._links.send(order.node, order.message)

    def _ask_for_proof(self, question: Question) -> None:
        self._links.ask(question.node, question.message, lambda reply: self._core.proven(question, reply))

    # -- copies --------------------------------------------------------------------------------------

    def _start_copy(self, copy: ReplicaCopy) -> None:
        target = self._core.cluster.hop(copy.target)
        assert target is not None, "a copy goes to a datanode that has registered"
        log.info("copying chunk %s from %s to %s", show(copy.chunk), copy.source, copy.target)
        token = self._permits.to_copy(copy.chunk, copy.version, [target])
        order = ReplicateChunk(copy.chunk, copy.version, [target], token, copy.bytes_per_second)
        self._links.ask(copy.source, order, lambda reply: self._copied(copy, reply))

    def _copied(self, copy: ReplicaCopy, reply: Message) -> None:
        copied = isinstance(reply, Done)
        if not copied:
            why = reply.message if isinstance(reply, Failure) else type(reply).__name__
            log.warning(
                "copying chunk %s from %s to %s failed: %s", show(copy.chunk), copy.source, copy.target, why
            )
        self.perform(self._core.copy_answered(self._monotonic(), copy, copied=copied))

    # -- grants and permits --------------------------------------------------------------------------

    def _tell_grant(self, push: Push) -> None:
        grant = push.grant
        self._on_waited(grant.waited_s)
        log.debug("grant %d: chunk %s through %s", grant.number, show(grant.chunk), ", ".join(grant.nodes))
        if push.is_reply:
            return
        if push.link is None:
            self.grants_awaited.wake(grant.write_set)
        elif (granted := self._permits.granted(grant)) is not None:
            self._links.send(push.link, Granted(_of_writer(grant.write_set), granted))

    def _tell_refusal(self, refusal: Refuse) -> None:
        if refusal.is_reply:
            return
        if refusal.link is None:
            self.grants_awaited.wake(refusal.write_set)
        else:
            message = GrantRefused(_of_writer(refusal.write_set), NoDatanodes.__name__, refusal.reason)
            self._links.send(refusal.link, message)

    def _tell_reader(self, served: Served) -> None:
        self.reads_awaited.wake(served.reader)


def name_here(link: NodeId | None, write_set: str) -> str:
    """Return the coordinator's name of a write set. Two writers may use the same name for theirs."""
    return f"{link or 'http'} {write_set}"


def _of_writer(name: str) -> str:
    """Return the writer's own name of a set."""
    return name.split(" ", 1)[1]


def _log_transition(transition: Transition) -> None:
    level = logging.INFO if transition.after is State.ALIVE else logging.WARNING
    log.log(level, "datanode %s is %s", transition.node, transition.after.value)


def _log_readiness(ready: BecameReady) -> None:
    log.info("ready: %d datanodes alive", ready.datanodes)


def _log_slowness(found: Slowness) -> None:
    part = "as a hop of pipelines" if found.part is SlowPart.HOP else "at its disk"
    if found.is_slow:
        log.warning(
            "datanode %s is slow %s: %.3f s a MiB, the median is %.3f. New chunks avoid it if possible",
            found.node,
            part,
            found.seconds,
            found.median,
        )
    else:
        log.info("datanode %s is not slow %s any more", found.node, part)
