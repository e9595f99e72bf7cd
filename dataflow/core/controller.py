"""The controller: it knows the nodes, notices deaths, and decides who runs what (Flux 2.2, SGuard 3).

It is told of heartbeats and of the time, and answers with placements. A unit that is lost begins again elsewhere
under a higher incarnation, with the latest checkpoint that was recorded: messages of the older one are refused.
Silence is measured in the time in which the controller listened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from peacefs.dataflow.core.technique import RecoveryPlan, StandbyKind
from peacefs.dataflow.limits import dataflow_busy_s_max
from peacefs.protocol import limits

from .attention import Attention
from .effects import DeleteCheckpoint, Effect, RecordCheckpoint, RetainCheckpoints, SendMessage, StopQuery
from .messages import (
    CheckpointRecorded,
    CheckpointStored,
    EventsHappened,
    EventsKept,
    HistoryWanted,
    Message,
    NodeAlive,
    NodeHeartbeat,
    Placement,
    RestartPointReached,
    RestartPointRecorded,
    StandbyInStep,
    StandbyPlacement,
    StandbyReady,
    UnitPlacement,
    UnitRecovered,
    UnitStopped,
)
from .pair_plan import CatchUp
from .unit_history import UnitHistory

# Units wait so long for all nodes that were wanted; then they are placed on those that are there.
dataflow_start_wait_s: Final = 10.0
# An observer that did nothing for a while counts no more of it than this part of the timeout.
dataflow_steps_of_silence: Final = 4
# A node whose connection to the controller broke may be silent so long.
dataflow_suspect_s: Final = 0.5
# Recorded checkpoints of a unit that are kept.
dataflow_checkpoints_kept: Final = 2
# Events of a unit that the controller keeps; the query stops when there are more.
dataflow_events_kept_max: Final = 4_000_000
# A query stops when a unit has begun so often, one start after the other, and has never caught up.
dataflow_starts_in_vain_max: Final = 10


@dataclass
class _Member:
    session: str
    address: str
    #: The time at which it was heard of last, in the seconds that the controller has listened.
    seen_s: float
    #: The time at which it has said something itself.
    spoke_s: float


class ControllerCore:
    """Decides which node runs which unit, and with which checkpoint or restart point it begins.

    It takes heartbeats, messages of nodes and the time, and returns effects; it does no I/O. Each start of a unit
    has a higher incarnation than the ones before, and reports of an earlier start change nothing. The primary and
    the standby of a unit are never on one node. `EdgeRun` drives it in the program that started the query, and
    `SeededRun` under a seed.
    """

    def __init__(
        self,
        units: Collection[str],
        edge: Mapping[str, UnitPlacement],
        *,
        edge_node: str,
        nodes_wanted: int = 1,
        node_timeout_s: float = limits.dataflow_node_timeout_s,
        resumed: Mapping[str, tuple[int, int]] | None = None,
        starts_before: int = 0,
        plan: RecoveryPlan | None = None,
    ) -> None:
        """`resumed`: the checkpoints of a query that goes on, as an earlier controller recorded them.

        `starts_before`: as many starts of a unit as there can have been under earlier controllers.
        """
        plan = plan or RecoveryPlan()
        self._histories = {unit: UnitHistory() for unit in plan.with_history}
        self._standby = plan.standby
        self._pairs = plan.pairs
        self._catch_up = None if plan.pairs is None else CatchUp(plan.pairs)
        self._node_timeout_s = node_timeout_s
        self._attention = Attention(node_timeout_s / dataflow_steps_of_silence)
        # Units are placed when so many nodes are there, or some are missing for too long, so that the first of
        # them does not get all.
        self._nodes_wanted = nodes_wanted
        self._begun_s: float | None = None
        self._edge_node = edge_node
        self._members: dict[str, _Member] = {}
        self._holders: dict[str, Mapping[str, int]] = {}
        free = {unit: UnitPlacement(None, starts_before, (resumed or {}).get(unit)) for unit in units}
        self._placement = Placement(1, {**free, **edge})
        # The version of which all were told last.
        self._announced = 1
        self._units = tuple(units)
        # Starts of each unit since it had caught up.
        self._starts: Counter[str] = Counter()
        #: Checkpoints of each unit that were recorded and are there, in their order.
        self._kept: dict[str, list[tuple[int, int]]] = {unit: [each] for unit, each in (resumed or {}).items()}

    @property
    def placement(self) -> Placement:
        return self._placement

    @property
    def members(self) -> Collection[str]:
        """The nodes that are alive."""
        return sorted(self._members)

    def address_of(self, node: str) -> str | None:
        """Return where a node that is alive can be reached."""
        member = self._members.get(node)
        return None if member is None else member.address

    def session_of(self, node: str) -> str | None:
        """Return the session of a node that is alive."""
        member = self._members.get(node)
        return None if member is None else member.session

    # -- events ---------------------------------------------------------------------------------------

    def received(self, now_s: float, node: str, message: Message) -> list[Effect]:
        """Take a message of a node."""
        match message:
            case NodeHeartbeat():
                return self.heartbeat(now_s, message)
            case NodeAlive():
                self.alive(message)
            case CheckpointStored():
                return self.checkpoint_stored(node, message)
            case RestartPointReached():
                return self.restart_point_reached(node, message)
            case EventsHappened():
                return self.events_happened(node, message)
            case HistoryWanted():
                return self.history_wanted(node, message)
            case StandbyReady():
                self.standby_ready(message)
            case StandbyInStep():
                return self.standby_in_step(node, message)
            case UnitStopped():
                return self.unit_stopped(message)
            case UnitRecovered():
                self.unit_recovered(message)
            case _:
                raise AssertionError(f"{type(message).__name__} is not for the controller")
        return []

    def heartbeat(self, now_s: float, beat: NodeHeartbeat) -> list[Effect]:
        member = self._members.get(beat.node)
        if member is not None and member.session != beat.session:
            # Its process began again, and with it everything that ran there is gone.
            self._lose(beat.node)
        listened_s = self._attention.listened_s
        self._members[beat.node] = _Member(beat.session, beat.address, listened_s, listened_s)
        if self._begun_s is None:
            self._begun_s = now_s
        effects = self._place_free_units()
        if beat.placement_version < self._placement.version and not effects:
            effects.append(SendMessage(beat.node, self._placement))
        return effects

    def alive(self, message: NodeAlive) -> None:
        """Learn that the process of a node runs, though the node may be busy with one batch."""
        member = self._members.get(message.node)
        if member is not None and member.session == message.session:
            member.seen_s = member.spoke_s = self._attention.listened_s

    def at_work(self, nodes: Collection[str]) -> None:
        """Learn from whoever runs nodes that these are slow, and not dead. For long that is not enough."""
        listened_s = self._attention.listened_s
        for member in (self._members[node] for node in nodes if node in self._members):
            if listened_s - member.spoke_s < dataflow_busy_s_max:
                member.seen_s = listened_s

    def tick(self, now_s: float) -> list[Effect]:
        oldest_s = self._attention.look(now_s) - self._node_timeout_s
        silent = [node for node, member in self._members.items() if member.seen_s < oldest_s]
        for node in silent:
            self._lose(node)
        if self._begun_s is not None and now_s - self._begun_s > dataflow_start_wait_s:
            self._nodes_wanted = 1
        if self._catch_up is not None:
            self._bring_back(now_s, self._catch_up)
        return self._place_free_units() or (self._announce() if silent else [])

    def disconnected(self, node: str) -> None:
        """Learn that a connection to a node broke: it is dead if it does not say otherwise very soon."""
        member = self._members.get(node)
        if member is not None:
            soon_s = self._attention.listened_s + dataflow_suspect_s
            member.seen_s = min(member.seen_s, soon_s - self._node_timeout_s)

    def node_lost(self, node: str) -> list[Effect]:
        """Learn from whoever runs the node that its process has ended."""
        if node not in self._members:
            return []
        self._lose(node)
        return self._place_free_units() or self._announce()

    def checkpoint_stored(self, node: str, message: CheckpointStored) -> list[Effect]:
        """Record a checkpoint of a unit, unless a later start of the unit is the valid one."""
        where = self._placement.units[message.unit]
        if where.incarnation != message.incarnation or where.node != node:
            return [DeleteCheckpoint(message.unit, (message.incarnation, message.number))]
        if message.unit in self._histories:
            self._histories[message.unit].captured((message.incarnation, message.number), message.event)
        return [RecordCheckpoint(message.unit, (message.incarnation, message.number), message.cost)]

    def recorded(self, unit: str, checkpoint: tuple[int, int]) -> list[Effect]:
        """Learn that a checkpoint was recorded: the unit begins with it from now on, and older ones may go."""
        where = self._placement.units[unit]
        incarnation, number = checkpoint
        if where.incarnation != incarnation or where.node is None:
            # It began again meanwhile, with an earlier one, and will soon have a later one.
            return []
        units = {**self._placement.units, unit: replace(where, checkpoint=checkpoint)}
        self._placement = replace(self._placement, units=units)
        if unit in self._histories:
            self._histories[unit].recorded(checkpoint)
        kept = [*self._kept.get(unit, ()), checkpoint][-dataflow_checkpoints_kept:]
        self._kept[unit] = kept
        return [
            SendMessage(where.node, CheckpointRecorded(unit, incarnation, number)),
            RetainCheckpoints(unit, kept[0]),
        ]

    def restart_point_reached(self, node: str, message: RestartPointReached) -> list[Effect]:
        """Begin a unit at this point from now on, unless a later start of the unit is the valid one."""
        where = self._placement.units[message.unit]
        if where.incarnation != message.incarnation or where.node != node:
            return []
        history = self._histories.get(message.unit)
        if history is not None:
            if message.point.event > history.last:
                # Events before it were lost on their way, and will come again; then another point will.
                return []
            history.begin_after(message.point.begin_event, message.data)
        units = {**self._placement.units, message.unit: replace(where, restart=message.point)}
        self._placement = replace(self._placement, units=units)
        return [SendMessage(node, RestartPointRecorded(message.unit, message.incarnation, message.number))]

    def events_happened(self, node: str, message: EventsHappened) -> list[Effect]:
        """Keep events of a unit, unless a later start of it is the valid one."""
        where = self._placement.units[message.unit]
        history = self._histories.get(message.unit)
        valid = where.incarnation == message.incarnation and where.node == node
        if history is None or not valid or not history.add(message):
            return []
        if len(history) > dataflow_events_kept_max:
            return [StopQuery(_too_many_events(message.unit))]
        return [SendMessage(node, EventsKept(message.unit, message.incarnation, history.last))]

    def history_wanted(self, node: str, message: HistoryWanted) -> list[Effect]:
        """Give a part of its history to the node where a unit is to begin."""
        where = self._placement.units[message.unit]
        history = self._histories.get(message.unit)
        if history is None or where.incarnation != message.incarnation or where.node != node:
            return []
        part = history.part(message.unit, message.incarnation, message.part)
        return [] if part is None else [SendMessage(node, part)]

    def unit_stopped(self, message: UnitStopped) -> list[Effect]:
        where = self._placement.units[message.unit]
        if where.standby is not None and where.standby.incarnation == message.incarnation:
            # The primary goes on; another standby begins with a copy.
            self._change(message.unit, replace(where, standby=None))
            return self._place_free_units() or self._announce()
        if where.incarnation != message.incarnation:
            return []
        if self._pairs is not None and where.standby is not None and _in_step(where.standby):
            # The other half goes on; if it has the same reason to stop, it says so.
            self._change(message.unit, self._taken_over(where, where.standby))
            return self._announce()
        return [StopQuery(message.reason)]

    def standby_in_step(self, node: str, message: StandbyInStep) -> list[Effect]:
        """Learn that the new half of a pair has what the other one has: all may read from it now."""
        where = self._placement.units[message.unit]
        standby = where.standby
        if where.node != node or standby is None or standby.incarnation != message.standby or _in_step(standby):
            return []
        self._change(message.unit, replace(where, standby=replace(standby, in_step=True)))
        return self._announce()

    def standby_ready(self, message: StandbyReady) -> bool:
        """Learn that a standby can take over. False if it is the unit's no longer."""
        where = self._placement.units[message.unit]
        standby = where.standby
        if standby is None or standby.incarnation != message.standby:
            return False
        # Nobody has to be told.
        ready = replace(where, standby=replace(standby, has_copy=True))
        self._placement = replace(self._placement, units={**self._placement.units, message.unit: ready})
        return True

    def unit_recovered(self, message: UnitRecovered) -> None:
        """Learn that a unit which began again has caught up."""
        if self._placement.units[message.unit].incarnation == message.incarnation:
            self._starts[message.unit] = 0

    def replicas_at(self, unit: str, nodes: Mapping[str, int]) -> None:
        """Learn how many bytes of a unit's checkpoint each node has nearby: it is recovered where most are."""
        self._holders[unit] = dict(nodes)

    # -- decisions --------------------------------------------------------------------------------------

    def _lose(self, node: str) -> None:
        del self._members[node]
        for unit in self._units:
            where = self._placement.units[unit]
            standby = where.standby
            if where.node == node:
                left = replace(where, node=None) if standby is None else self._taken_over(where, standby)
                self._change(unit, left)
            elif standby is not None and standby.node == node:
                self._change(unit, replace(where, standby=None))

    def _taken_over(self, where: UnitPlacement, standby: StandbyPlacement) -> UnitPlacement:
        """Return the place of a unit whose standby takes over."""
        slot = 1 - where.slot if self._standby is StandbyKind.ACTIVE else where.slot
        return replace(
            where, node=standby.node, incarnation=standby.incarnation, slot=slot, standby=None, took_over=True
        )

    def _place_free_units(self) -> list[Effect]:
        placed = self._placement.units
        free = [unit for unit in self._units if placed[unit].node is None]
        gone = [unit for unit in free if self._standby is not None and placed[unit].starts]
        if gone:
            return [StopQuery(f"unit {gone[0]!r} has lost its primary and its standby, and its state with them")]
        if not self._members or len(self._members) < self._nodes_wanted:
            return []
        if free:
            # Later losses are placed on whoever is left.
            self._nodes_wanted = 1
        for unit in free:
            self._starts[unit] += 1
            if self._starts[unit] > dataflow_starts_in_vain_max:
                return [StopQuery(_never_catches_up(unit))]
            where = placed[unit]
            incarnation = where.incarnation + 1
            homes = None if self._pairs is None else self._pairs.homes(unit, self.members)
            node = self._choose(unit) if homes is None else homes[0]
            chosen = replace(where, node=node, incarnation=incarnation)
            if self._standby is not None:
                chosen = replace(chosen, starts=incarnation)
            self._change(unit, chosen)
        if self._standby is not None:
            self._place_standbys(fresh=set(free))
        return self._announce() if self._placement.version > self._announced else []

    def _place_standbys(self, fresh: set[str]) -> None:
        """Give each unit a standby on another node, if there is one. Those of `fresh` units begin with them."""
        for unit in self._units:
            where = self._placement.units[unit]
            if where.node is None or where.standby is not None or not self._members.keys() - {where.node}:
                continue
            if self._pairs is None:
                self._place_standby(unit, self._choose(unit, other_than=where.node), fresh=unit in fresh)
            elif unit in fresh and (homes := self._pairs.homes(unit, self.members)) is not None:
                self._place_standby(unit, homes[1], fresh=True)

    def _place_standby(self, unit: str, node: str, *, fresh: bool) -> None:
        where = self._placement.units[unit]
        starts = where.starts + 1
        self._change(unit, replace(where, standby=StandbyPlacement(node, starts, fresh=fresh), starts=starts))

    def _bring_back(self, now_s: float, catch_up: CatchUp) -> None:
        """Give the pair whose turn it is another half, on a node that runs little."""
        placed = {unit: self._placement.units[unit] for unit in self._units}
        busy = any(where.standby is not None and not _in_step(where.standby) for where in placed.values())
        alone = [unit for unit, where in placed.items() if where.node is not None and where.standby is None]
        unit = catch_up.next(now_s, alone, busy=busy)
        if unit is not None and self._members.keys() - {placed[unit].node}:
            self._place_standby(unit, self._choose(unit, other_than=placed[unit].node), fresh=False)

    def _choose(self, unit: str, other_than: str | None = None) -> str:
        """Return the node that has most of the checkpoint, then that which runs least."""
        holders = self._holders.get(unit, {})
        running = [self._placement.units[other].node for other in self._units]
        standbys = [self._placement.units[other].standby for other in self._units]
        running += [standby.node for standby in standbys if standby is not None]
        free = [node for node in self._members if node != other_than]
        return min(free, key=lambda node: (-holders.get(node, 0), running.count(node), node))

    def _change(self, unit: str, where: UnitPlacement) -> None:
        units = {**self._placement.units, unit: where}
        addresses = {node: member.address for node, member in sorted(self._members.items())}
        self._placement = Placement(self._placement.version + 1, units, addresses)

    def _announce(self) -> list[Effect]:
        self._announced = self._placement.version
        return [SendMessage(node, self._placement) for node in (self._edge_node, *sorted(self._members))]


def _in_step(standby: StandbyPlacement) -> bool:
    return standby.fresh or standby.in_step


def _too_many_events(unit: str) -> str:
    return (
        f"unit {unit!r} would have to repeat more than {dataflow_events_kept_max:,} events: take "
        "checkpoints more often, make windows smaller, or use ActiveStandby()"
    )


def _never_catches_up(unit: str) -> str:
    return (
        f"unit {unit!r} has begun {dataflow_starts_in_vain_max} times in a row, and each time its node was "
        "lost before it had caught up: a row may end the process that treats it; the last lines of a node on "
        "standard error say more"
    )
