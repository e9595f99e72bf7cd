"""The service of write grants: messages of writers and datanodes in, signed grants and questions out.

Whoever asks over a datanode's link is told of a later grant over it; who asks by HTTP has the question held for
a moment, and asks again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from zlib import crc32

from peacefs.coordinator.cluster.commands import Order
from peacefs.coordinator.namespace.checkpoint_root import checkpoint_root
from peacefs.coordinator.scheduling.checkpoint_estimates import CheckpointSource
from peacefs.coordinator.scheduling.scheduler import Scheduling
from peacefs.coordinator.scheduling.statistics import FastLane
from peacefs.coordinator.scheduling.write_sets import Ask, Effect, Push, Refuse, WriteSetRequest
from peacefs.protocol.errors import NoDatanodes
from peacefs.protocol.ids import ChunkId, NodeId, show
from peacefs.protocol.limits import chunk_bytes_max, grant_hold_s, pipeline_hops_max, write_token_lifetime_s
from peacefs.protocol.messages import (
    AskStreams,
    Done,
    Granted,
    GrantRefused,
    Message,
    Scheduled,
    StateWriteSet,
    StreamEnded,
    StreamsFound,
    StreamUnderWay,
    WrittenChunk,
)
from peacefs.protocol.tokens import FileLease, FileWrite

from .append import AppendOperations, writer_of
from .context import OperationContext
from .placement import ChunkPlacer, check_room

log = logging.getLogger("peacefs.coordinator")


class WriteGrantService:
    """Belongs to the event loop. `on_waited` hears how long each grant's set has waited, in seconds."""

    def __init__(
        self, context: OperationContext, placer: ChunkPlacer, appending: AppendOperations, scheduling: Scheduling
    ) -> None:
        self._ctx = context
        self._placer = placer
        self._append = appending
        self.scheduling = scheduling
        self.fast_lane = FastLane()
        self.on_waited: Callable[[float], None] = lambda seconds: None
        self._awaited: dict[str, asyncio.Event] = {}
        #: The network as the policy has it: its description, and the datanodes.
        self._seen: object = None

    # -- writers -----------------------------------------------------------------------------------

    async def state(self, wanted: StateWriteSet, link: NodeId | None, writer_host: str | None) -> Scheduled:
        """A writer states what it has to write.

        Raises AccessDenied, LeaseExpired, BadRequest, NoDatanodes for what can never be granted, Overloaded.
        """
        token = self._ctx.signer.verify_for_writing(wanted.token, self._ctx.wall_clock())
        # Heard of whoever may write no more, too: for want of room, or of a lease.
        self._ctx.send(self._ctx.cluster.abandon(wanted.abandoned, writer_of(token)))
        if wanted.chunks:
            if isinstance(token, FileLease):
                self._append.renew_lease(token)
            check_room(self._ctx.reader, token, wanted.written_bytes)
        await self._ctx.until_ready()
        self.see_datanodes()
        request = self._request(wanted, token, link, writer_host)
        self._carry_out(self.scheduling.state(self._ctx.monotonic(), request), asking=request.name)
        answer = self._held_grants(request)
        if answer.waiting and not answer.grants and wanted.wait_s > 0:
            await self._granted(request.name, min(wanted.wait_s, grant_hold_s))
            answer = self._held_grants(request)
        return answer

    def _request(
        self, wanted: StateWriteSet, token: FileWrite | FileLease, link: NodeId | None, writer_host: str | None
    ) -> WriteSetRequest:
        source = None
        if wanted.to_come_bytes < 0 and len(wanted.chunks) == 1:
            host = token.client_host if isinstance(token, FileWrite) else ""
            source = CheckpointSource(host or writer_host or "", checkpoint_root(token.path))
        return WriteSetRequest(
            name=_name_here(link, wanted.write_set),
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
        )

    def _datanode_at(self, host: str | None, write_set: str) -> NodeId | None:
        """The datanode on a writer's host; where there are several, one of them for each set."""
        there = [node.id for node in self._ctx.cluster.members.in_service() if node.registration.data_host == host]
        return there[crc32(write_set.encode()) % len(there)] if there else None

    def _held_grants(self, request: WriteSetRequest) -> Scheduled:
        held_grants = self.scheduling.held_grants(request.name, request.chunks.keys())
        grants = [granted for each in held_grants if (granted := self._placer.granted(each)) is not None]
        return Scheduled(grants, len(request.chunks) - len(grants), self.scheduling.expected_start_s(request.name))

    async def _granted(self, name: str, wait_s: float) -> None:
        event = self._awaited.setdefault(name, asyncio.Event())
        try:
            async with asyncio.timeout(wait_s):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            self._awaited.pop(name, None)

    def published(self, chunks: Sequence[WrittenChunk]) -> None:
        """A file was completed."""
        now_s = self._ctx.monotonic()
        self._carry_out(self.scheduling.published(now_s, [(chunk.chunk, chunk.length) for chunk in chunks]))

    # -- datanodes ---------------------------------------------------------------------------------

    def see_datanodes(self) -> None:
        """Chunks go to those that are in service and have room for one."""
        cluster = self._ctx.cluster
        roomy = [node for node in cluster.members.in_service() if node.usage.available_bytes >= chunk_bytes_max]
        seen = cluster.network.revision, [(node.id, node.rack) for node in roomy]
        if seen == self._seen:
            return
        self._seen = seen
        if cluster.network.is_described:
            topology = cluster.network.topology(roomy)
        else:
            topology = self.scheduling.undescribed.of({node.id: node.rack for node in roomy})
        self._carry_out(self.scheduling.use(self._ctx.monotonic(), topology))

    def registered(self, node: NodeId, streams: Sequence[StreamUnderWay]) -> None:
        """A datanode came, or came back."""
        self.scheduling.registered(self._ctx.monotonic(), node, streams)

    def died(self, node: NodeId) -> None:
        """A datanode counts as dead."""
        self.scheduling.died(node)

    def ended(self, node: NodeId, ended: StreamEnded) -> Done:
        """The first node of a pipeline is done with a chunk."""
        if ended.completed:
            self._ctx.cluster.written(ended.chunk)
        else:
            self._ctx.cluster.write_ended(ended.chunk)
        now_s = self._ctx.monotonic()
        self._carry_out(
            self.scheduling.ended(now_s, node, ended.chunk, completed=ended.completed, length=ended.length)
        )
        return Done()

    def found(self, node: NodeId, answer: StreamsFound) -> Done:
        """A datanode answers a question."""
        now_s = self._ctx.monotonic()
        found = {each.chunk: each for each in answer.found}
        self._carry_out(self.scheduling.answered(now_s, node, answer.asked, found))
        return Done()

    # -- time, copies, operators -------------------------------------------------------------------

    def tick(self) -> None:
        """To be called several times a second, and soon again while the policy has more to do."""
        self.see_datanodes()
        self._carry_out(self.scheduling.tick(self._ctx.monotonic()))

    def now_s(self) -> float:
        """The clock by which grants are timed."""
        return self._ctx.monotonic()

    @property
    def has_more(self) -> bool:
        """Whether `tick` is to be called again soon."""
        return self.scheduling.has_more

    def copy_begins(self, chunk: ChunkId, source: NodeId, target: NodeId) -> None:
        """A copy for repair takes a slot."""
        self._carry_out(self.scheduling.copy_begins(self._ctx.monotonic(), chunk, source, target))

    def copy_ended(self, chunk: ChunkId) -> None:
        """It gives the slot back."""
        self._carry_out(self.scheduling.copy_ended(self._ctx.monotonic(), chunk))

    def change_policy(self, name: str) -> None:
        """Raises BadRequest, Unsupported."""
        before = self.scheduling.policy_name
        self._carry_out(self.scheduling.change_policy(self._ctx.monotonic(), name))
        log.info("the scheduling policy is %s now, it was %s", name, before)

    # ----------------------------------------------------------------------------------------------

    def _carry_out(self, effects: Sequence[Effect], *, asking: str = "") -> None:
        """`asking` is the set whose writer gets the answer to its own question in another way."""
        refused = None
        for effect in effects:
            match effect:
                case Push():
                    self._push(effect, asking)
                case Refuse(name) if name == asking:
                    refused = effect
                case Refuse():
                    self._refuse(effect)
                case Ask(node, chunks):
                    self._ctx.send([Order(node, AskStreams(list(chunks)))])
        if refused is not None:
            raise NoDatanodes(refused.reason)

    def _push(self, push: Push, asking: str) -> None:
        grant = push.grant
        self._ctx.cluster.granted(self._ctx.monotonic(), grant.chunk, grant.nodes, write_token_lifetime_s)
        self._ctx.cluster.assignments.assign(grant.chunk, push.owner)
        self.on_waited(grant.waited_s)
        log.debug("grant %d: chunk %s through %s", grant.number, show(grant.chunk), ", ".join(grant.nodes))
        granted = self._placer.granted(grant)
        if grant.write_set != asking and granted is not None:
            self._tell(push.link, grant.write_set, Granted(_of_writer(grant.write_set), granted))

    def _refuse(self, refusal: Refuse) -> None:
        message = GrantRefused(_of_writer(refusal.write_set), NoDatanodes.__name__, refusal.reason)
        self._tell(refusal.link, refusal.write_set, message)

    def _tell(self, link: NodeId | None, write_set: str, message: Message) -> None:
        if link is not None:
            self._ctx.send([Order(link, message)])
        elif write_set in self._awaited:
            self._awaited[write_set].set()


def _name_here(link: NodeId | None, write_set: str) -> str:
    """What a set is called here: two writers may call theirs the same."""
    return f"{link or 'http'} {write_set}"


def _of_writer(name: str) -> str:
    """What the writer itself calls a set."""
    return name.split(" ", 1)[1]
