"""Where writers and datanodes meet the scheduling service: messages in, signed grants and questions out.

Whoever asks over a datanode's link is told of a later grant over it; who asks by HTTP has the question held for
a moment, and asks again.
"""

from __future__ import annotations

import logging
from zlib import crc32

from peacefs.coordinator.namespace.checkpoint_root import checkpoint_root
from peacefs.coordinator.scheduling.checkpoint_estimates import Source
from peacefs.coordinator.scheduling.statistics import FastLane
from peacefs.coordinator.scheduling.write_sets import Refuse, Wish
from peacefs.protocol.errors import NoDatanodes
from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import grant_hold_s
from peacefs.protocol.messages import Done, Scheduled, StateWriteSet, StreamEnded, StreamsFound
from peacefs.protocol.tokens import FileLease, FileWrite

from .append import Appending, writer_of
from .context import Workplace
from .core_driver import name_here
from .quota_checks import check_room

log = logging.getLogger("peacefs.coordinator")


class ScheduleDesk:
    """Belongs to the event loop."""

    def __init__(self, workplace: Workplace, appending: Appending) -> None:
        self._at = workplace
        self._appending = appending
        self.scheduling = workplace.core.scheduling
        self.fast_lane = FastLane()

    # -- writers -----------------------------------------------------------------------------------

    async def state(self, wanted: StateWriteSet, link: NodeId | None, writer_host: str | None) -> Scheduled:
        """A writer states what it has to write.

        Raises AccessDenied, LeaseExpired, BadRequest, NoDatanodes for what can never be granted, Overloaded.
        """
        at = self._at
        token = at.signer.verify_for_writing(wanted.token, at.wall_clock())
        # Heard of whoever may write no more, too: for want of room, or of a lease.
        at.perform(at.core.given_up(wanted.abandoned, writer_of(token)))
        if wanted.chunks:
            if isinstance(token, FileLease):
                self._appending.renew_lease(token)
            check_room(at.reader, token, wanted.written_bytes)
        await at.until_ready()
        at.perform(at.core.see_datanodes(at.monotonic()))
        wish = self._wish(wanted, token, link, writer_host)
        commands = at.core.state_writes(at.monotonic(), wish)
        at.perform(commands)
        for command in commands:
            if isinstance(command, Refuse) and command.is_reply:
                raise NoDatanodes(command.reason)
        answer = self._standing(wish)
        if answer.waiting and not answer.grants and wanted.patience_s > 0:
            await at.driver.grants_awaited.wait(wish.name, min(wanted.patience_s, grant_hold_s))
            answer = self._standing(wish)
        return answer

    def _wish(
        self, wanted: StateWriteSet, token: FileWrite | FileLease, link: NodeId | None, writer_host: str | None
    ) -> Wish:
        source = None
        if wanted.to_come_bytes < 0 and len(wanted.chunks) == 1:
            host = token.client_host if isinstance(token, FileWrite) else ""
            source = Source(host or writer_host or "", checkpoint_root(token.path))
        return Wish(
            name=name_here(link, wanted.write_set),
            link=link,
            writer=link or self._datanode_at(writer_host, wanted.write_set),
            replication=token.replication,
            chunks=dict(wanted.chunks),
            exclude=frozenset(wanted.exclude),
            abandoned=tuple(wanted.abandoned),
            holding=tuple(wanted.holding),
            waited_s=max(0.0, wanted.waited_s),
            source=source,
            to_come_bytes=max(0, wanted.to_come_bytes),
            owner=writer_of(token),
        )

    def _datanode_at(self, host: str | None, write_set: str) -> NodeId | None:
        """The datanode on a writer's host; where there are several, one of them for each set."""
        there = [node.id for node in self._at.cluster.members.in_service() if node.registration.data_host == host]
        return there[crc32(write_set.encode()) % len(there)] if there else None

    def _standing(self, wish: Wish) -> Scheduled:
        standing = self.scheduling.standing(wish.name, wish.chunks.keys())
        grants = [granted for each in standing if (granted := self._at.permits.granted(each)) is not None]
        return Scheduled(grants, len(wish.chunks) - len(grants), self.scheduling.expected_start_s(wish.name))

    # -- datanodes ---------------------------------------------------------------------------------

    def ended(self, node: NodeId, ended: StreamEnded) -> Done:
        """The first node of a pipeline is done with a chunk."""
        self._at.perform(self._at.core.stream_ended(self._at.monotonic(), node, ended))
        return Done()

    def found(self, node: NodeId, answer: StreamsFound) -> Done:
        """A datanode answers a question."""
        self._at.perform(self._at.core.streams_found(self._at.monotonic(), node, answer))
        return Done()

    # -- operators ---------------------------------------------------------------------------------

    def now_s(self) -> float:
        """The clock by which grants are timed."""
        return self._at.monotonic()

    def change_policy(self, name: str) -> None:
        """Raises BadRequest, Unsupported."""
        before = self.scheduling.policy_name
        self._at.perform(self._at.core.change_policy(self._at.monotonic(), name))
        log.info("the scheduling policy is %s now, it was %s", name, before)
