"""Write grants: messages of writers and datanodes come in, signed grants and questions go out.

A caller over a datanode's link gets a later grant over the link. A request over HTTP is held for a moment, and the
caller asks again.
"""

from __future__ import annotations

import logging
from zlib import crc32

from peacefs.coordinator.namespace.checkpoint_root import checkpoint_root
from peacefs.coordinator.scheduling.checkpoint_estimates import CheckpointSource
from peacefs.coordinator.scheduling.statistics import FastLane
from peacefs.coordinator.scheduling.write_sets import Refuse, WriteSetRequest
from peacefs.peace.recurrences import RecurrenceKey, Recurrences
from peacefs.protocol.errors import NoDatanodes
from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import grant_hold_s, pipeline_hops_max
from peacefs.protocol.messages import Done, Scheduled, StateWriteSet, StreamEnded, StreamsFound
from peacefs.protocol.new_file import NewFile
from peacefs.protocol.tokens import FileLease, FileWrite

from .append import AppendOperations, writer_of
from .context import OperationContext
from .core_driver import name_here
from .placement import check_room
from .write_classes import WriteClasses

log = logging.getLogger("peacefs.coordinator")


class WriteGrantService:
    """Grants writes. Used from one event loop."""

    def __init__(self, context: OperationContext, appending: AppendOperations) -> None:
        self._ctx = context
        self._append = appending
        self.scheduling = context.core.scheduling
        self.fast_lane = FastLane()
        self.recurrences = Recurrences()
        self._classes = WriteClasses(self.recurrences)

    # -- writers -----------------------------------------------------------------------------------

    async def state(self, wanted: StateWriteSet, link: NodeId | None, writer_host: str | None) -> Scheduled:
        """Process a writer's statement of what it has to write.

        Raises AccessDenied, LeaseExpired, BadRequest, NoDatanodes for what can never be granted, Overloaded.
        """
        ctx = self._ctx
        token = ctx.signer.verify_for_writing(wanted.token, ctx.wall_clock())
        # Record the statement even if the writer may write no more, because room or its lease is gone.
        ctx.perform(ctx.core.abandon(wanted.abandoned, writer_of(token)))
        if wanted.chunks:
            if isinstance(token, FileLease):
                self._append.renew_lease(token)
            check_room(ctx.reader, token, wanted.written_bytes)
        await ctx.until_ready()
        ctx.perform(ctx.core.see_datanodes(ctx.monotonic()))
        request = self._request(wanted, token, link, writer_host)
        commands = ctx.core.state_writes(ctx.monotonic(), request)
        ctx.perform(commands)
        for command in commands:
            if isinstance(command, Refuse) and command.is_reply:
                raise NoDatanodes(command.reason)
        answer = self._held_grants(request)
        if answer.waiting and not answer.grants and wanted.wait_s > 0:
            await ctx.driver.grants_awaited.wait(request.name, min(wanted.wait_s, grant_hold_s))
            answer = self._held_grants(request)
        return answer

    def _request(
        self, wanted: StateWriteSet, token: FileWrite | FileLease, link: NodeId | None, writer_host: str | None
    ) -> WriteSetRequest:
        source = None
        if wanted.to_come_bytes < 0 and len(wanted.chunks) == 1:
            host = token.client_host if isinstance(token, FileWrite) else ""
            source = CheckpointSource(host or writer_host or "", checkpoint_root(token.path))
        now_s = self._ctx.monotonic()
        key = self._key(token)
        if wanted.chunks:
            self._classes.wrote(now_s, key, 0, token.user if isinstance(token, FileWrite) else "")
        return WriteSetRequest(
            name=name_here(link, wanted.write_set),
            link=link,
            writer=link or self._datanode_at(writer_host, wanted.write_set),
            replication=min(token.replication, pipeline_hops_max),
            chunks=dict(wanted.chunks),
            exclude=frozenset(wanted.exclude),
            abandoned=tuple(wanted.abandoned),
            holding=tuple(wanted.holding),
            waited_s=max(0.0, wanted.waited_s),
            source=source,
            to_come_bytes=max(0, wanted.to_come_bytes),
            owner=writer_of(token),
            user=token.user if isinstance(token, FileWrite) else "",
            write_class=key.write_class,
            due_s=self._classes.due_s(now_s, key),
        )

    def _key(self, token: FileWrite | FileLease) -> RecurrenceKey:
        """Return the root and class of a write. A log that is flushed while it is written has a lease."""
        if isinstance(token, FileLease):
            return self._classes.key(token.path, flushed=True)
        return self._classes.key(token.path, token.file.write_class)

    def completed(self, token: FileWrite | FileLease, length: int) -> None:
        """Learn from bytes that were published under a token."""
        user = token.user if isinstance(token, FileWrite) else ""
        self._classes.wrote(self._ctx.monotonic(), self._key(token), length, user)

    def created(self, file: NewFile, length: int) -> None:
        """Learn from a small file that was published at once."""
        key = self._classes.key(file.path, file.write_class)
        self._classes.wrote(self._ctx.monotonic(), key, length, file.user)

    def _datanode_at(self, host: str | None, write_set: str) -> NodeId | None:
        """Return the datanode on a writer's host. If there are several, each set gets one of them."""
        there = [node.id for node in self._ctx.cluster.members.in_service() if node.registration.data_host == host]
        return there[crc32(write_set.encode()) % len(there)] if there else None

    def _held_grants(self, request: WriteSetRequest) -> Scheduled:
        held_grants = self.scheduling.held_grants(request.name, request.chunks.keys())
        grants = [granted for each in held_grants if (granted := self._ctx.permits.granted(each)) is not None]
        return Scheduled(grants, len(request.chunks) - len(grants), self.scheduling.expected_start_s(request.name))

    # -- datanodes ---------------------------------------------------------------------------------

    def ended(self, node: NodeId, ended: StreamEnded) -> Done:
        """Note that the first node of a pipeline is done with a chunk."""
        self._ctx.perform(self._ctx.core.stream_ended(self._ctx.monotonic(), node, ended))
        return Done()

    def found(self, node: NodeId, answer: StreamsFound) -> Done:
        """Take a datanode's answer to a question."""
        self._ctx.perform(self._ctx.core.streams_found(self._ctx.monotonic(), node, answer))
        return Done()

    # -- operators ---------------------------------------------------------------------------------

    def now_s(self) -> float:
        """Return the time in seconds by which grants are timed."""
        return self._ctx.monotonic()

    def wall_s(self) -> float:
        """Return the Unix time, in which phases are proposed."""
        return self._ctx.wall_clock()

    def change_policy(self, name: str) -> None:
        """Change the scheduler's policy. Raises BadRequest, Unsupported."""
        before = self.scheduling.policy_name
        self._ctx.perform(self._ctx.core.change_policy(self._ctx.monotonic(), name))
        log.info("the scheduling policy is now %s; it was %s", name, before)
