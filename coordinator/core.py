"""The coordinator's core: everything that it decides, in one object. Pure: events and the time in, commands out.

`CoordinatorCore` is composed of smaller cores, each for one subject: `Cluster` (datanodes and replicas),
`Scheduling` (write sets and grants), `RecoveryReads`, `Supervision` and `Epochs`. The service and the simulated
world of the tests both drive it through `CoreDriver`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from peacefs.coordinator.limits import lost_replicas_per_turn
from peacefs.protocol.ids import ChunkId, NodeId, Numbering
from peacefs.protocol.limits import chunk_bytes_max, streams_per_node_default, write_token_lifetime_s
from peacefs.protocol.messages import (
    AskStreams,
    Heartbeat,
    Message,
    Register,
    ReportChunks,
    StreamEnded,
    StreamsFound,
    WrittenChunk,
)
from peacefs.topology.model import Topology

from .cluster.commands import Order
from .cluster.core import Cluster, Ticked
from .cluster.deferred_deletes import DeferredDeletes
from .cluster.membership import State, Transition
from .cluster.possession import Question
from .cluster.repair import ReplicaCopy
from .cluster.replica_history import ReplicaHistory
from .cluster.slow_peers import Slowness
from .metadata.epochs import Epochs
from .metadata.model import ChunkRecord
from .scheduling.policies import POLICY_DEFAULT
from .scheduling.read_scheduler import ReadRequest, RecoveryReads
from .scheduling.scheduler import Scheduling
from .scheduling.write_sets import Ask, Effect, Push, Refuse, WriteSetRequest
from .supervision.core import Supervision


@dataclass(frozen=True, slots=True)
class Served:
    """A reader got new read grants. Tell it, if it waits for them."""

    reader: str


@dataclass(frozen=True, slots=True)
class BecameReady:
    """For the log: enough datanodes have reported to place chunks and judge replication."""

    datanodes: int


#: In this order: send a message; ask a datanode and pass its answer to `proven`; start a copy and pass its outcome
#: to `copy_answered`; tell a writer of its grant, or refusal; tell a reader of its grants. Log the others.
Command = Order | Question | ReplicaCopy | Push | Refuse | Served | Transition | Slowness | BecameReady


class CoordinatorCore:
    """Everything that a coordinator decides by itself, and the soft state behind these decisions.

    To pass in an event, call its method with the monotonic time; it returns commands. The driving loop:

        core = CoordinatorCore(now_s, begin_epoch(metadata, now_s), random)
        for page in chunks_of_the_metadata:
            core.load(page)
        core.loaded()
        while True:
            match next_event():
                case Heartbeat() as beat:
                    commands = core.heartbeat(now_s, node, beat)
                ...
                case Tick():
                    commands = core.tick(now_s)
                case Idle() if core.has_more:
                    commands = core.turn(now_s)
            for command in commands:
                perform[type(command)](command)

    The driver has these duties, on which the core relies:

    1. Call it from one thread, with a `now_s` that never goes back.
    2. Perform the commands of an event in their order, before the next event. A message may be lost.
    3. Answer each `Question` once, by `proven`, and each `ReplicaCopy` once, by `copy_answered`. Pass a failure
       if the connection breaks, the datanode is not connected, or no answer comes.
    4. Load all chunks of the metadata, and call `loaded`, before the first `register`.
    5. Before telling a datanode the epoch, pass the epoch and commit that it has seen to `epochs.shown`. If that
       returns a `HoldFloor`, make it durable and call `epochs.gc_floor_held`. Only then register the datanode.
       Take its reports and heartbeats only from the connection that registered last.
    6. Call `published`, `freed` and `replaced` when the commit that made the change is durable. Commit the
       records that `supervision` returns, in their order, before telling an agent of them. Commit the change that
       `epochs.advance` returns, and pass the outcome to `epochs.advanced`.
    7. Call `tick` several times a second. While `has_more`, call `turn` after other tasks had their turn.

    A method that raises has changed nothing. For an event that concerns only one part, call the part's own
    method, which returns its commands in the same way. Anyone may read the parts.
    """

    def __init__(
        self,
        now_s: float,
        epochs: Epochs,
        rng: Random,
        *,
        described: Topology | None = None,
        nonce: Callable[[], bytes] | None = None,
        history: ReplicaHistory | None = None,
        policy: str = POLICY_DEFAULT,
        streams_per_node: int = streams_per_node_default,
    ) -> None:
        """Begin without datanodes. `described` is the administrator's description of the network.

        `nonce` draws bytes that no datanode can foresee. `history` records what happens to replicas.
        Raises BadRequest if the policy is unknown, Unsupported if it is not installed.
        """
        self.epochs = epochs
        self.numbering: Numbering = epochs.numbering
        self.scheduling = Scheduling(self.numbering, rng, policy=policy, streams_per_node=streams_per_node)
        self.cluster = Cluster(
            now_s,
            rng,
            described,
            nonce=nonce,
            history=history,
            has_room=self.scheduling.has_room,
            granted_pipelines=self.scheduling.pipelines,
        )
        self.reads = RecoveryReads(self.scheduling.has_room)
        self.supervision = Supervision(now_s)
        self._replaced = DeferredDeletes()
        #: The network that the scheduling policy has: the revision of the description, and the datanodes.
        self._seen: object = None
        self._was_ready = False
        self._has_lost_replicas = False

    # -- the metadata --------------------------------------------------------------------------------

    def load(self, records: Sequence[ChunkRecord]) -> None:
        """Take in a page of the chunks that the metadata knew at the start."""
        self.cluster.load(records)

    def loaded(self) -> None:
        """Note that the last page has been loaded."""
        self.cluster.loaded()

    def published(
        self, now_s: float, records: Sequence[ChunkRecord], written: Sequence[WrittenChunk]
    ) -> list[Command]:
        """Take in that `records` were added to a file. `written` are the chunks that its writer has completed."""
        self.cluster.published(records)
        return self._settle(
            now_s, self.scheduling.published(now_s, [(each.chunk, each.length) for each in written])
        )

    def freed(self, now_s: float, records: Sequence[ChunkRecord]) -> list[Command]:
        """Take in chunks that no file refers to any more."""
        return [*self.cluster.freed(now_s, records)]

    def replaced(self, now_s: float, records: Sequence[ChunkRecord]) -> list[Command]:
        """Free chunks later: other chunks hold their bytes now, but readers may still have the old layout."""
        return self.freed(now_s, excess) if (excess := self._replaced.add(now_s, records)) else []

    def changed_elsewhere(self, now_s: float, chunk: ChunkId, record: ChunkRecord | None) -> None:
        """As a standby, take in a chunk that the leader added or changed, or freed if `record` is None."""
        known = self.cluster.chunks.get(chunk)
        if record is None:
            if known is not None:
                # The leader orders the deletion, so drop the orders.
                self.cluster.freed(now_s, [ChunkRecord(chunk, known.version, known.length, known.replication, ())])
        elif known is None:
            self.cluster.published([record])
        else:
            self.cluster.load([record])

    def stand_by(self, now_s: float) -> list[Command]:
        """Do the periodic work of a standby, in place of `tick`."""
        return [*self.cluster.stand_by(now_s)]

    # -- datanodes -----------------------------------------------------------------------------------

    def register(self, now_s: float, registration: Register) -> None:
        """Take in a new or returning datanode with the streams that it receives. Its report comes later."""
        self.cluster.register(now_s, registration)
        self.scheduling.registered(now_s, registration.node, registration.streams)

    def report(self, now_s: float, node: NodeId, part: ReportChunks) -> list[Command]:
        """Take in a part of a full block report."""
        return [*self.cluster.report(now_s, node, part)]

    def heartbeat(self, now_s: float, node: NodeId, beat: Heartbeat) -> list[Command]:
        """Take in a heartbeat, with the changes since the last one."""
        return [*self.cluster.heartbeat(now_s, node, beat)]

    def stream_ended(self, now_s: float, node: NodeId, ended: StreamEnded) -> list[Command]:
        """Take in that the head of a pipeline is done with a chunk."""
        if ended.completed:
            self.cluster.written(ended.chunk)
        else:
            self.cluster.write_ended(ended.chunk)
        return self._settle(
            now_s,
            self.scheduling.ended(now_s, node, ended.chunk, completed=ended.completed, length=ended.length),
        )

    def streams_found(self, now_s: float, node: NodeId, answer: StreamsFound) -> list[Command]:
        """Take in a datanode's answer to `AskStreams`: which of the chunks it is receiving."""
        found = {each.chunk: each for each in answer.found}
        return self._settle(now_s, self.scheduling.answered(now_s, node, answer.asked, found))

    def copy_answered(self, now_s: float, copy: ReplicaCopy, *, copied: bool) -> list[Command]:
        """Take in the outcome of a copy, and free its slot."""
        commands = self._settle(now_s, self.scheduling.copy_ended(now_s, copy.chunk))
        self.cluster.answered(copy, copied=copied)
        return commands

    def proven(self, question: Question, answer: Message) -> None:
        """Process a datanode's answer to a question, or a Failure if there was no answer."""
        self.cluster.proven(question, answer)

    # -- writers and readers -------------------------------------------------------------------------

    def abandon(self, chunks: Iterable[ChunkId], writer: str) -> list[Command]:
        """Take in a writer's statement that these chunks will be part of no file."""
        return [*self.cluster.abandon(chunks, writer)]

    def state_writes(self, now_s: float, request: WriteSetRequest) -> list[Command]:
        """Process a writer's statement of what it has to write. Call `see_datanodes` before.

        Grants and refusals of this write set are marked as the reply; do not push them. Raises BadRequest,
        NoDatanodes, Overloaded.
        """
        return self._settle(now_s, self.scheduling.state(now_s, request), asking=request.name)

    def state_reads(self, now_s: float, request: ReadRequest) -> list[Command]:
        """Process a reader's statement of what it reads and wants to read. Raises BadRequest, Overloaded."""
        return [Served(name) for name in self.reads.state(now_s, request)]

    # -- operators -----------------------------------------------------------------------------------

    def change_policy(self, now_s: float, name: str) -> list[Command]:
        """Change the policy that grants chunks. Raises BadRequest, Unsupported."""
        return self._settle(now_s, self.scheduling.change_policy(now_s, name))

    # -- time ----------------------------------------------------------------------------------------

    def tick(self, now_s: float) -> list[Command]:
        """Do the periodic work."""
        ticked = self.cluster.tick(now_s, self.epochs.garbage)
        for transition in ticked.transitions:
            if transition.after is State.DEAD:
                self.scheduling.died(transition.node)
        commands: list[Command] = [*ticked.transitions, *ticked.slowness, *ticked.orders, *ticked.questions]
        commands += self._start_copies(now_s, ticked)
        commands += self.freed(now_s, due) if (due := self._replaced.due(now_s)) else []
        commands += self._schedule(now_s)
        commands += [Served(name) for name in self.reads.tick(now_s)]
        self._has_lost_replicas = self.cluster.chunks.remove_lost(lost_replicas_per_turn)
        if not self._was_ready and self.cluster.ready(now_s):
            self._was_ready = True
            commands.append(BecameReady(len(self.cluster.members.alive())))
        return commands

    @property
    def has_more(self) -> bool:
        """Whether the last tick left work for `turn`, so that other tasks get their turn before."""
        return self._has_lost_replicas or self.scheduling.has_more

    def turn(self, now_s: float) -> list[Command]:
        """Do some more of the work that the last tick left."""
        if self._has_lost_replicas:
            self._has_lost_replicas = self.cluster.chunks.remove_lost(lost_replicas_per_turn)
        return self._schedule(now_s) if self.scheduling.has_more else []

    def see_datanodes(self, now_s: float) -> list[Command]:
        """Tell the scheduling policy which datanodes are in service and have room for a chunk, if they changed."""
        cluster = self.cluster
        roomy = [node for node in cluster.members.in_service() if node.usage.available_bytes >= chunk_bytes_max]
        seen = cluster.network.revision, [(node.id, node.rack) for node in roomy]
        if seen == self._seen:
            return []
        self._seen = seen
        if cluster.network.is_described:
            topology = cluster.network.topology(roomy)
        else:
            topology = self.scheduling.undescribed.of({node.id: node.rack for node in roomy})
        return self._settle(now_s, self.scheduling.use(now_s, topology))

    def _schedule(self, now_s: float) -> list[Command]:
        return [*self.see_datanodes(now_s), *self._settle(now_s, self.scheduling.tick(now_s))]

    def _start_copies(self, now_s: float, ticked: Ticked) -> list[Command]:
        """Let each copy take a slot of its target, and of the links to it."""
        commands: list[Command] = []
        for copy in ticked.copies:
            begun = self.scheduling.copy_begins(now_s, copy.chunk, copy.source, copy.target)
            commands += self._settle(now_s, begun)
            commands.append(copy)
        return commands

    def _settle(self, now_s: float, effects: Sequence[Effect], *, asking: str = "") -> list[Command]:
        """Turn effects into commands, and tell the cluster of grants. Effects of the set `asking` are replies."""
        commands: list[Command] = []
        for effect in effects:
            match effect:
                case Push(grant=grant):
                    self.cluster.granted(now_s, grant.chunk, grant.nodes, write_token_lifetime_s)
                    self.cluster.assignments.assign(grant.chunk, effect.owner)
                    commands.append(replace(effect, is_reply=True) if grant.write_set == asking else effect)
                case Refuse():
                    commands.append(replace(effect, is_reply=True) if effect.write_set == asking else effect)
                case Ask(node, chunks):
                    commands.append(Order(node, AskStreams(list(chunks))))
        return commands
