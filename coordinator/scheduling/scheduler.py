"""The scheduling service's core: decides who may write which chunk now, and through which datanodes. Pure.

Events and `now` go in, effects come out. A policy of `peacefs.peace` decides; this module tracks the writers.

A grant holds capacity until the head of its pipeline reports the end of the stream, its writer returns it, or
every node of the pipeline denies it. It never ends merely because time has passed; instead the nodes of old grants
are asked. A place in the queue, by contrast, is lost when its writer falls silent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from random import Random
from typing import Final

from peacefs.peace.policies.interface import (
    Aborted,
    Changed,
    Event,
    Finished,
    Policy,
    Submitted,
    Withdrawn,
)
from peacefs.peace.policies.ledger import Grant, WriteSet
from peacefs.protocol.errors import NoDatanodes, Overloaded
from peacefs.protocol.ids import ChunkId, NodeId, Numbering, epoch_of
from peacefs.protocol.limits import streams_per_node_default
from peacefs.protocol.messages import StreamProgress, StreamUnderWay
from peacefs.topology.model import Topology

from .checkpoint_estimates import CheckpointEstimates
from .copy_slots import CopySlots
from .grant_history import GrantHistory
from .grant_monitor import IdleGrants, LapsedGrants, is_lapsed
from .policies import POLICY_DEFAULT, AmpleNetwork, make_policy
from .statistics import WaitingStatistics
from .write_sets import (
    TAKEN_OVER,
    CancelledSets,
    Effect,
    InFlight,
    Push,
    Refuse,
    ScheduledSet,
    WriteSetRequest,
    taken_over,
)

write_sets_waiting_max: Final = 1000
write_set_chunks_waiting_max: Final = 100_000


MakePolicy = Callable[[str, Topology, Random], Policy]


class Scheduling:
    """All write sets and grants of one coordinator. `CoordinatorCore` owns and drives it.

    Each chunk of a write set waits, is in flight under a grant, or is done. Each grant that is not idle is counted
    by the policy, also across a change of policy.
    """

    def __init__(
        self,
        numbering: Numbering,
        rng: Random,
        *,
        policy: str = POLICY_DEFAULT,
        streams_per_node: int = streams_per_node_default,
        policy_maker: MakePolicy = make_policy,
    ) -> None:
        """Begin with a policy. Raises BadRequest if it is unknown, Unsupported if it is not installed."""
        self._numbering = numbering
        self._rng = rng
        self._make_policy = policy_maker
        #: Makes the network if no administrator has described it.
        self.undescribed = AmpleNetwork(streams_per_node)
        self._topology = Topology()
        self.policy_name = policy
        self._policy = policy_maker(policy, self._topology, rng)
        self._sets: dict[str, ScheduledSet] = {}
        self._grants: dict[ChunkId, InFlight] = {}
        self._copies = CopySlots()
        self._chunks_waiting = 0
        self._lapsed = LapsedGrants()
        self._idle = IdleGrants()
        self._estimates = CheckpointEstimates()
        self._cancelled = CancelledSets()
        self.times = WaitingStatistics()
        self.history = GrantHistory()

    # -- writers' statements -----------------------------------------------------------------------

    def state(self, now_s: float, request: WriteSetRequest) -> list[Effect]:
        """Record what a writer has to write, for the first time or again. `held_grants` returns its grants.

        Raises BadRequest for a number out of range, NoDatanodes if all are excluded, Overloaded if too much waits.
        """
        request.check()
        self._check_queue(request)
        known = self._sets.get(request.name)
        events = self._abandon(now_s, request)
        held = {self._grants[chunk].index for chunk in known.in_flight} if known else set[int]()
        waiting = {index: size for index, size in request.chunks.items() if index not in held}
        if known is None:
            known = self._sets[request.name] = ScheduledSet(request, self._since(now_s, request), now_s, now_s)
        known.heard_s = now_s
        for stream in request.holding:
            if epoch_of(stream.chunk) < self.epoch and stream.chunk not in self._grants and stream.nodes:
                self._take_over(now_s, stream)
        changed = (known.waiting, known.request.exclude, known.request.write_class) != (
            waiting,
            request.exclude,
            request.write_class,
        )
        known.request = request
        if changed or events:
            self._chunks_waiting += len(waiting) - len(known.waiting)
            known.waiting = waiting
            events.append(self._submission(now_s, known))
        if not request.chunks:
            self._cancelled.remember(now_s, request.name, known.asked_s)
        effects = self._handle(now_s, events)
        self._forget_if_done(request.name)
        return effects

    def _abandon(self, now_s: float, request: WriteSetRequest) -> list[Event]:
        """Take back grants that the writer abandoned, or that never reached it and are too late to use."""
        known = self._sets.get(request.name)
        held = {stream.chunk for stream in request.holding}
        events: list[Event] = []
        of_set = [self._grants[chunk] for chunk in known.in_flight] if known else []
        named = [grant for chunk in request.abandoned if (grant := self._grants.get(chunk)) is not None]
        for grant in [*of_set, *(grant for grant in named if grant.write_set == TAKEN_OVER)]:
            is_wanted = grant.index in request.chunks and not is_lapsed(now_s, grant)
            is_held = grant.chunk in held and grant.chunk not in request.abandoned
            if not is_held and (grant.chunk in request.abandoned or not is_wanted):
                self._close(now_s, grant, 0, written=False)
                events.append(Aborted(grant.in_policy, request.exclude))
        return events

    def _check_queue(self, request: WriteSetRequest) -> None:
        if not request.chunks:
            return
        if self._topology.servers.keys() <= request.exclude:
            raise NoDatanodes(
                f"no datanode can take a chunk: {self.datanodes} in service have room for one, "
                f"{len(request.exclude)} excluded"
            )
        known = self._sets.get(request.name)
        waiting = len(known.waiting) if known else 0
        sets = 0 if waiting else sum(bool(other.waiting) for other in self._sets.values())
        chunks = self._chunks_waiting - waiting + len(request.chunks)
        if sets >= write_sets_waiting_max or chunks > write_set_chunks_waiting_max:
            raise Overloaded(f"{self._chunks_waiting} chunks wait to be written already; try again in a while")

    def _since(self, now_s: float, request: WriteSetRequest) -> float:
        asked_s = self._cancelled.take(request.name, now_s)
        if request.source is not None:
            asked_s = min(asked_s, self._estimates.under_way(request.source, now_s).began_s)
        return min(asked_s, now_s - request.waited_s)

    def _submission(self, now_s: float, known: ScheduledSet) -> Event:
        if not known.waiting:
            return Withdrawn(known.request.name)
        source, more_bytes, begun = known.request.source, known.request.to_come_bytes, bool(known.in_flight)
        if source is not None:
            checkpoint = self._estimates.under_way(source, now_s)
            more_bytes = max(0, checkpoint.to_come_bytes - sum(known.waiting.values()))
            begun = checkpoint.granted_bytes > 0
        return Submitted(known.for_policy(more_bytes, begun=begun))

    def held_grants(self, name: str, indexes: Collection[int]) -> list[InFlight]:
        """Return a set's grants in flight for the chunks with these indexes."""
        known = self._sets.get(name)
        grants = (self._grants[chunk] for chunk in known.in_flight) if known else ()
        return sorted((each for each in grants if each.index in indexes), key=lambda each: each.number)

    # -- ends of grants ----------------------------------------------------------------------------

    def ended(self, now_s: float, node: NodeId, chunk: ChunkId, *, completed: bool, length: int) -> list[Effect]:
        """Record that a stream ended, as reported by its head. Ignores other nodes and repeated reports."""
        grant = self._grants.get(chunk)
        if grant is None or node != grant.nodes[0]:
            return []
        return self._end(now_s, grant, completed=completed, length=length)

    def published(self, now_s: float, chunks: Iterable[tuple[ChunkId, int]]) -> list[Effect]:
        """End the grants of published chunks, given as ids and lengths, because a dead head would never report."""
        lengths = {chunk: length for chunk, length in chunks if chunk in self._grants}
        return [
            effect
            for chunk, length in lengths.items()
            for effect in self._end(now_s, self._grants[chunk], completed=True, length=length)
        ]

    def _end(self, now_s: float, grant: InFlight, *, completed: bool, length: int) -> list[Effect]:
        known = self._sets.get(grant.write_set)
        self._close(now_s, grant, length, written=completed)
        event: Event = Finished(grant.in_policy)
        events = [event]
        if completed:
            self.times.took(now_s - grant.granted_s)
        else:
            # The writer's next statement says whether it wants the chunk again.
            events = [Aborted(grant.in_policy)]
            if known is not None:
                events.append(self._submission(now_s, known))
        effects = self._handle(now_s, events)
        self._forget_if_done(grant.write_set)
        return effects

    def _close(self, now_s: float, grant: InFlight, length: int, *, written: bool) -> None:
        del self._grants[grant.chunk]
        self.history.ended(now_s, grant, length if written else 0)
        known = self._sets.get(grant.write_set)
        if known is not None:
            known.in_flight.discard(grant.chunk)
        if grant.source is not None:
            self._estimates.ended(grant.source, grant.chunk_bytes, length, now_s)

    def _forget_if_done(self, name: str) -> None:
        known = self._sets.get(name)
        if known is not None and not known.waiting and not known.in_flight:
            del self._sets[name]

    # -- datanodes ---------------------------------------------------------------------------------

    def use(self, now_s: float, topology: Topology) -> list[Effect]:
        """Set the datanodes that may receive chunks, and the network between them."""
        self._topology = topology
        self._idle.use(topology)
        return self._handle(now_s, [Changed(topology)])

    def registered(self, now_s: float, node: NodeId, streams: Sequence[StreamUnderWay]) -> None:
        """Record that a datanode returned, with the streams that begin there."""
        self._lapsed.lives(node)
        for stream in streams:
            if stream.chunk not in self._grants and stream.nodes[:1] == [node]:
                self._take_over(now_s, stream)
            if stream.chunk in self._grants:
                self._grants[stream.chunk].found(node)
        there = {stream.chunk for stream in streams}
        for grant in self._grants.values():
            if grant.nodes[0] == node and grant.chunk not in there:
                grant.denied.add(node)

    def _take_over(self, now_s: float, stream: StreamUnderWay) -> None:
        """Take over a grant of an earlier epoch, so that its capacity is counted in this epoch too."""
        grant = taken_over(stream, now_s)
        self._grants[stream.chunk] = grant
        self._adopt(grant)

    def _adopt(self, grant: InFlight) -> None:
        write_set = WriteSet(grant.write_set, grant.writer, len(grant.nodes), (grant.chunk_bytes,))
        grant.in_policy = self._policy.adopt(write_set, grant.nodes).number

    def died(self, node: NodeId) -> None:
        """Record that a datanode is dead, and therefore receives no stream."""
        self._lapsed.died(node)

    def answered(
        self, now_s: float, node: NodeId, asked: Iterable[ChunkId], found: Mapping[ChunkId, StreamProgress]
    ) -> list[Effect]:
        """Record a datanode's answer: which of the chunks in the question it is receiving."""
        effects: list[Effect] = []
        for chunk in asked:
            grant = self._grants.get(chunk)
            if grant is None:
                continue
            if chunk in found:
                grant.found(node)
                if node == grant.nodes[0]:
                    effects += self._looked(now_s, grant, found[chunk])
                continue
            grant.denied.add(node)
            effects += self._end_if_denied(now_s, grant)
        return effects

    def _looked(self, now_s: float, grant: InFlight, seen: StreamProgress) -> list[Effect]:
        """Record progress: lend the capacity of an idle grant to others until its writer continues."""
        before, grant.is_idle = grant.is_idle, self._idle.is_idle(grant, seen)
        if grant.is_idle == before:
            return []
        if grant.is_idle:
            # From now on, the policy does not know the grant, even after a change of policy.
            number, grant.in_policy = grant.in_policy, 0
            return self._handle(now_s, [Finished(number)])
        self._adopt(grant)
        return []

    def _end_if_denied(self, now_s: float, grant: InFlight) -> list[Effect]:
        if not self._lapsed.is_denied(grant):
            return []
        self.times.lapsed_total += 1
        return self._end(now_s, grant, completed=False, length=0)

    # -- time --------------------------------------------------------------------------------------

    def tick(self, now_s: float) -> list[Effect]:
        """Do the periodic work, several times a second."""
        events: list[Event] = [Withdrawn(name) for name in self._fallen_silent(now_s)]
        self._cancelled.forget_old(now_s)
        effects = [*self._handle(now_s, events), *self._questions(now_s)]
        return [*effects, *self._idle.questions(now_s, self._grants.values())]

    @property
    def has_more(self) -> bool:
        """Whether the policy stopped early so that other tasks get a turn. Then call `tick` again soon."""
        return self._policy.has_more

    def _fallen_silent(self, now_s: float) -> list[str]:
        silent = [name for name, known in self._sets.items() if known.is_silent(now_s)]
        for name in silent:
            self._drop_waiting(name)
        return silent

    def _drop_waiting(self, name: str) -> None:
        known = self._sets[name]
        self._chunks_waiting -= len(known.waiting)
        known.waiting = {}
        self._forget_if_done(name)

    def _questions(self, now_s: float) -> list[Effect]:
        """Return questions about grants that may have lapsed, and the effects of lapsed grants."""
        due = self._lapsed.due(now_s, self._grants.values())
        ended = [effect for grant in due for effect in self._end_if_denied(now_s, grant)]
        return [*ended, *self._lapsed.questions(now_s, (grant for grant in due if grant.chunk in self._grants))]

    # -- the policy --------------------------------------------------------------------------------

    def change_policy(self, now_s: float, name: str) -> list[Effect]:
        """Change the policy. Grants in flight stay, and waiting sets keep their age.

        Raises BadRequest if the policy is unknown, Unsupported if it is not installed.
        """
        self._policy = self._make_policy(name, self._topology, self._rng)
        self.policy_name = name
        for grant in self._grants.values():
            if not grant.is_idle:
                self._adopt(grant)
        self._copies.begin_again(self._policy)
        return self._handle(now_s, [self._submission(now_s, known) for known in self.queue])

    def _push(self, grant: InFlight) -> Push:
        request = self._sets[grant.write_set].request
        return Push(grant, request.link, request.owner)

    def _handle(self, now_s: float, events: Sequence[Event]) -> list[Effect]:
        effects: list[Effect] = [
            self._push(grant)
            for grant in [self._grant(now_s, given) for given in self._policy.handle(events, now_s)]
        ]
        if self._grants or self._copies or self._policy.has_more or not self._chunks_waiting:
            return effects
        return [*effects, *self._refuse_all(now_s)]

    def _grant(self, now_s: float, given: Grant) -> InFlight:
        known = self._sets[given.write_set]
        index = known.numbered[given.chunk]
        del known.waiting[index]
        self._chunks_waiting -= 1
        self.times.granted_total += 1
        grant = InFlight(
            chunk=self._numbering.next(),
            version=self._numbering.next(),
            number=self.times.granted_total,
            in_policy=given.number,
            write_set=given.write_set,
            index=index,
            chunk_bytes=given.chunk_bytes,
            writer=given.writer,
            nodes=given.chain,
            granted_s=now_s,
            asked_s=now_s,
            waited_s=now_s - known.stated_s,
            source=known.request.source,
            user=known.request.user,
            write_class=known.request.write_class,
        )
        known.in_flight.add(grant.chunk)
        self._grants[grant.chunk] = grant
        if grant.source is not None:
            self._estimates.granted(grant.source, grant.chunk_bytes, now_s)
        if not known.begun:
            known.begun = True
            self.times.waited(now_s - known.stated_s)
        return grant

    def _refuse_all(self, now_s: float) -> list[Effect]:
        """Refuse all waiting sets, because they do not fit even while no chunk is in flight."""
        reason = (
            f"the policy {self.policy_name} finds no place for it even in an idle cluster of "
            f"{self.datanodes} datanodes that may receive chunks"
        )
        refused = [known for known in self._sets.values() if known.waiting]
        for known in refused:
            self._drop_waiting(known.request.name)
        self._policy.handle([Withdrawn(known.request.name) for known in refused], now_s)
        return [Refuse(known.request.name, known.request.link, reason) for known in refused]

    # -- the current state -------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self._numbering.epoch

    @property
    def grants(self) -> Collection[InFlight]:
        """The grants in flight, in the order in which they were given."""
        return self._grants.values()

    def pipelines(self) -> Mapping[ChunkId, Sequence[NodeId]]:
        """Return the pipeline of each chunk with a grant, the head first."""
        return {chunk: grant.nodes for chunk, grant in self._grants.items()}

    @property
    def queue(self) -> list[ScheduledSet]:
        """The sets that have waiting chunks, oldest first."""
        return sorted((known for known in self._sets.values() if known.waiting), key=lambda each: each.asked_s)

    @property
    def datanodes(self) -> int:
        """The number of datanodes that may receive chunks."""
        return len(self._topology.servers)

    @property
    def chunks_waiting(self) -> int:
        return self._chunks_waiting

    @property
    def waiting_share(self) -> float | None:
        """The share of the last minute in which urgent writes waited; None if the policy does not measure it."""
        return self._policy.waiting_share

    def expected_start_s(self, name: str) -> float:
        """Estimate the seconds until the next chunk of a set is granted.

        Assumes that older sets come first, and that grants end at the recent rate. The policy may decide
        otherwise.
        """
        known = self._sets.get(name)
        if known is None or not known.waiting:
            return 0.0
        ahead = sum(len(other.waiting) for other in self._sets.values() if other.asked_s < known.asked_s)
        return (ahead + 1) * self.times.grant_s / max(1, len(self._grants))

    # -- copies for repair and balancing -----------------------------------------------------------

    def has_room(self, node: NodeId) -> bool:
        """Return whether the chunks in flight leave a slot of the datanode for a copy."""
        return self._policy.has_room(node)

    def copy_begins(self, now_s: float, chunk: ChunkId, source: NodeId, target: NodeId) -> list[Effect]:
        """Reserve a slot of a copy's target and of the links to it. Ends an earlier copy of the chunk."""
        effects = self.copy_ended(now_s, chunk)
        self._copies.begin(self._policy, chunk, source, target)
        return effects

    def copy_ended(self, now_s: float, chunk: ChunkId) -> list[Effect]:
        """Give back the slots of a copy. Does nothing if it has ended already."""
        number = self._copies.end(chunk)
        return [] if number is None else self._handle(now_s, [Finished(number)])
