"""The controller: it knows the nodes, notices deaths, and decides who runs what (Flux 2.2, SGuard 3).

It is told of heartbeats and of the time, and answers with placements. A unit that is lost begins again elsewhere
under a higher incarnation, with the latest checkpoint that was recorded: messages of the older one are refused.
Silence is measured in the time in which the controller listened.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from peacefs.protocol import limits

from .effects import DeleteCheckpoint, Effect, RecordCheckpoint, RetainCheckpoints, SendMessage, StopQuery
from .members import Members
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
    StandbyReady,
    UnitPlacement,
    UnitRecovered,
    UnitStopped,
)
from .query_recovery import RecoveryPlan
from .unit_history import UnitHistory
from .unit_places import UnitPlaces, dataflow_starts_in_vain_max, is_in_step

# Units wait so long for all nodes that were wanted; then they are placed on those that are there.
dataflow_start_wait_s: Final = 10.0
# Recorded checkpoints of a unit that are kept.
dataflow_checkpoints_kept: Final = 2
# Events of a unit that the controller keeps; the query stops when there are more.
dataflow_events_kept_max: Final = 4_000_000


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
        self._members = Members(node_timeout_s)
        # Units are placed when so many nodes are there, or some are missing for too long, so that the first of
        # them does not get all.
        self._nodes_wanted = nodes_wanted
        self._begun_s: float | None = None
        self._edge_node = edge_node
        self._places = UnitPlaces(
            units, edge, plan, self._members, resumed=resumed or {}, starts_before=starts_before
        )
        # The version of which all were told last.
        self._announced = 1
        #: Checkpoints of each unit that were recorded and are there, in their order.
        self._kept: dict[str, list[tuple[int, int]]] = {unit: [each] for unit, each in (resumed or {}).items()}

    @property
    def placement(self) -> Placement:
        return self._places.placement

    @property
    def members(self) -> Collection[str]:
        """The nodes that are alive."""
        return self._members.names

    def address_of(self, node: str) -> str | None:
        """Return where a node that is alive can be reached."""
        return self._members.address_of(node)

    def session_of(self, node: str) -> str | None:
        """Return the session of a node that is alive."""
        return self._members.session_of(node)

    # -- events ---------------------------------------------------------------------------------------

    def received(self, now_s: float, node: str, message: Message) -> list[Effect]:
        """Take a message of a node."""
        match message:
            case NodeHeartbeat():
                return self.heartbeat(now_s, message)
            case NodeAlive():
                self._members.alive(message)
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
        if self._members.has_begun_again(beat):
            self._lose(beat.node)
        self._members.heartbeat(beat)
        if self._begun_s is None:
            self._begun_s = now_s
        effects = self._place_free_units()
        if beat.placement_version < self.placement.version and not effects:
            effects.append(SendMessage(beat.node, self.placement))
        return effects

    def at_work(self, nodes: Collection[str]) -> None:
        """Learn from whoever runs nodes that these are slow, and not dead. For long that is not enough."""
        self._members.at_work(nodes)

    def tick(self, now_s: float) -> list[Effect]:
        silent = self._members.silent(now_s)
        for node in silent:
            self._lose(node)
        if self._begun_s is not None and now_s - self._begun_s > dataflow_start_wait_s:
            self._nodes_wanted = 1
        self._places.bring_back(now_s)
        return self._place_free_units() or (self._announce() if silent else [])

    def disconnected(self, node: str) -> None:
        """Learn that a connection to a node broke: it is dead if it does not say otherwise very soon."""
        self._members.disconnected(node)

    def node_lost(self, node: str) -> list[Effect]:
        """Learn from whoever runs the node that its process has ended."""
        if node not in self._members:
            return []
        self._lose(node)
        return self._place_free_units() or self._announce()

    def checkpoint_stored(self, node: str, message: CheckpointStored) -> list[Effect]:
        """Record a checkpoint of a unit, unless a later start of the unit is the valid one."""
        where = self._places[message.unit]
        if where.incarnation != message.incarnation or where.node != node:
            return [DeleteCheckpoint(message.unit, (message.incarnation, message.number))]
        if message.unit in self._histories:
            self._histories[message.unit].captured((message.incarnation, message.number), message.event)
        return [RecordCheckpoint(message.unit, (message.incarnation, message.number), message.cost)]

    def recorded(self, unit: str, checkpoint: tuple[int, int]) -> list[Effect]:
        """Learn that a checkpoint was recorded: the unit begins with it from now on, and older ones may go."""
        where = self._places[unit]
        incarnation, number = checkpoint
        if where.incarnation != incarnation or where.node is None:
            # It began again meanwhile, with an earlier one, and will soon have a later one.
            return []
        self._places.note(unit, replace(where, checkpoint=checkpoint))
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
        where = self._places[message.unit]
        if where.incarnation != message.incarnation or where.node != node:
            return []
        history = self._histories.get(message.unit)
        if history is not None:
            if message.point.event > history.last:
                # Events before it were lost on their way, and will come again; then another point will.
                return []
            history.begin_after(message.point.begin_event, message.data)
        self._places.note(message.unit, replace(where, restart=message.point))
        return [SendMessage(node, RestartPointRecorded(message.unit, message.incarnation, message.number))]

    def events_happened(self, node: str, message: EventsHappened) -> list[Effect]:
        """Keep events of a unit, unless a later start of it is the valid one."""
        where = self._places[message.unit]
        history = self._histories.get(message.unit)
        valid = where.incarnation == message.incarnation and where.node == node
        if history is None or not valid or not history.add(message):
            return []
        if len(history) > dataflow_events_kept_max:
            return [StopQuery(_too_many_events(message.unit))]
        return [SendMessage(node, EventsKept(message.unit, message.incarnation, history.last))]

    def history_wanted(self, node: str, message: HistoryWanted) -> list[Effect]:
        """Give a part of its history to the node where a unit is to begin."""
        where = self._places[message.unit]
        history = self._histories.get(message.unit)
        if history is None or where.incarnation != message.incarnation or where.node != node:
            return []
        part = history.part(message.unit, message.incarnation, message.part)
        return [] if part is None else [SendMessage(node, part)]

    def unit_stopped(self, message: UnitStopped) -> list[Effect]:
        where = self._places[message.unit]
        if where.standby is not None and where.standby.incarnation == message.incarnation:
            # The primary goes on; another standby begins with a copy.
            self._places.change(message.unit, replace(where, standby=None))
            return self._place_free_units() or self._announce()
        if where.incarnation != message.incarnation:
            return []
        if self._places.is_equal(message.unit) and where.standby is not None and is_in_step(where.standby):
            # The other half goes on; if it has the same reason to stop, it says so.
            self._places.take_over(message.unit)
            return self._announce()
        return [StopQuery(message.reason)]

    def standby_in_step(self, node: str, message: StandbyInStep) -> list[Effect]:
        """Learn that the new half of a pair has what the other one has: all may read from it now."""
        where = self._places[message.unit]
        standby = where.standby
        if where.node != node or standby is None or standby.incarnation != message.standby or is_in_step(standby):
            return []
        self._places.change(message.unit, replace(where, standby=replace(standby, in_step=True)))
        return self._announce()

    def standby_ready(self, message: StandbyReady) -> bool:
        """Learn that a standby can take over. False if it is the unit's no longer."""
        where = self._places[message.unit]
        standby = where.standby
        if standby is None or standby.incarnation != message.standby:
            return False
        self._places.note(message.unit, replace(where, standby=replace(standby, has_copy=True)))
        return True

    def unit_recovered(self, message: UnitRecovered) -> None:
        """Learn that a unit which began again has caught up."""
        if self._places[message.unit].incarnation == message.incarnation:
            self._places.caught_up(message.unit)

    def replicas_at(self, unit: str, nodes: Mapping[str, int]) -> None:
        """Learn how many bytes of a unit's checkpoint each node has nearby: it is recovered where most are."""
        self._places.replicas_at(unit, nodes)

    # -- decisions --------------------------------------------------------------------------------------

    def _lose(self, node: str) -> None:
        self._members.remove(node)
        self._places.lose(node)

    def _place_free_units(self) -> list[Effect]:
        if self._places.lost:
            unit = self._places.lost[0]
            return [StopQuery(f"unit {unit!r} has lost its primary and its standby, and its state with them")]
        if not len(self._members) or len(self._members) < self._nodes_wanted:
            return []
        free = self._places.free
        if free:
            # Later losses are placed on whoever is left.
            self._nodes_wanted = 1
        in_vain = self._places.begin(free)
        if in_vain is not None:
            return [StopQuery(_never_catches_up(in_vain))]
        self._places.give_standbys(fresh=free)
        return self._announce() if self.placement.version > self._announced else []

    def _announce(self) -> list[Effect]:
        self._announced = self.placement.version
        return [SendMessage(node, self.placement) for node in (self._edge_node, *self._members.names)]


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
