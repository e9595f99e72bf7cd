"""The controller: it tracks the nodes, detects failures, and decides who runs what (Flux 2.2, SGuard 3).

Heartbeats and the time go in, placements come out. A lost unit is started on another node under a higher
incarnation, from the latest recorded checkpoint. Messages of an older incarnation are refused. The silence of a
node is measured only while the controller listens.
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

# How long units wait for all the requested nodes. After that, they are placed on the nodes that exist.
dataflow_start_wait_s: Final = 10.0
# Number of recorded checkpoints that are kept per unit.
dataflow_checkpoints_kept: Final = 2
# Maximum number of events that the controller keeps per unit. Above that, the query stops.
dataflow_events_kept_max: Final = 4_000_000


class ControllerCore:
    """Decides which node runs which unit, and from which checkpoint or restart point it begins.

    It takes heartbeats, messages of nodes and the time, and returns effects; it does no I/O. Each start of a unit
    has a higher incarnation than all before it, and reports of an earlier start change nothing. The primary and
    the standby of a unit are never on the same node. `EdgeRun` drives it in the program that started the query,
    and `SeededRun` in seeded simulations.
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
        """`resumed`: the checkpoints of a resumed query, as the previous controller recorded them.

        `starts_before`: the maximum number of starts of a unit under previous controllers.
        """
        plan = plan or RecoveryPlan()
        self._histories = {unit: UnitHistory() for unit in plan.with_history}
        self._members = Members(node_timeout_s)
        # Units are placed when this many nodes exist, or after a timeout. Otherwise the first node would get all
        # units.
        self._nodes_wanted = nodes_wanted
        self._begun_s: float | None = None
        self._edge_node = edge_node
        self._places = UnitPlaces(
            units, edge, plan, self._members, resumed=resumed or {}, starts_before=starts_before
        )
        # The version of the placement that was last announced.
        self._announced = 1
        #: The existing recorded checkpoints of each unit, oldest first.
        self._kept: dict[str, list[tuple[int, int]]] = {unit: [each] for unit, each in (resumed or {}).items()}

    @property
    def placement(self) -> Placement:
        return self._places.placement

    @property
    def members(self) -> Collection[str]:
        """The live nodes."""
        return self._members.names

    def address_of(self, node: str) -> str | None:
        """Return the address of a live node."""
        return self._members.address_of(node)

    def session_of(self, node: str) -> str | None:
        """Return the session of a live node."""
        return self._members.session_of(node)

    # -- events ---------------------------------------------------------------------------------------

    def received(self, now_s: float, node: str, message: Message) -> list[Effect]:
        """Process a message of a node."""
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
        """Note that these nodes are slow, but not dead.

        The launcher of the nodes says so. It is believed for a limited time.
        """
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
        """Note that the connection to a node broke. The node is dead unless it sends something very soon."""
        self._members.disconnected(node)

    def node_lost(self, node: str) -> list[Effect]:
        """Note that the process of a node has ended. The launcher of the node says so."""
        if node not in self._members:
            return []
        self._lose(node)
        return self._place_free_units() or self._announce()

    def checkpoint_stored(self, node: str, message: CheckpointStored) -> list[Effect]:
        """Record a checkpoint of a unit, unless the unit was started again since."""
        where = self._places[message.unit]
        if where.incarnation != message.incarnation or where.node != node:
            return [DeleteCheckpoint(message.unit, (message.incarnation, message.number))]
        if message.unit in self._histories:
            self._histories[message.unit].captured((message.incarnation, message.number), message.event)
        return [RecordCheckpoint(message.unit, (message.incarnation, message.number), message.cost)]

    def recorded(self, unit: str, checkpoint: tuple[int, int]) -> list[Effect]:
        """Note that a checkpoint is recorded: a restart begins with it, and older ones may be deleted."""
        where = self._places[unit]
        incarnation, number = checkpoint
        if where.incarnation != incarnation or where.node is None:
            # The unit was started again meanwhile, from an earlier checkpoint. It will soon store a later one.
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
        """Let restarts of a unit begin at this point, unless the unit was started again since."""
        where = self._places[message.unit]
        if where.incarnation != message.incarnation or where.node != node:
            return []
        history = self._histories.get(message.unit)
        if history is not None:
            if message.point.event > history.last:
                # Events before the point were lost in transit, and will be sent again. Then another point will
                # follow.
                return []
            history.begin_after(message.point.begin_event, message.data)
        self._places.note(message.unit, replace(where, restart=message.point))
        return [SendMessage(node, RestartPointRecorded(message.unit, message.incarnation, message.number))]

    def events_happened(self, node: str, message: EventsHappened) -> list[Effect]:
        """Keep events of a unit, unless the unit was started again since."""
        where = self._places[message.unit]
        history = self._histories.get(message.unit)
        valid = where.incarnation == message.incarnation and where.node == node
        if history is None or not valid or not history.add(message):
            return []
        if len(history) > dataflow_events_kept_max:
            return [StopQuery(_too_many_events(message.unit))]
        return [SendMessage(node, EventsKept(message.unit, message.incarnation, history.last))]

    def history_wanted(self, node: str, message: HistoryWanted) -> list[Effect]:
        """Send a part of a unit's history to the node where the unit is about to begin."""
        where = self._places[message.unit]
        history = self._histories.get(message.unit)
        if history is None or where.incarnation != message.incarnation or where.node != node:
            return []
        part = history.part(message.unit, message.incarnation, message.part)
        return [] if part is None else [SendMessage(node, part)]

    def unit_stopped(self, message: UnitStopped) -> list[Effect]:
        where = self._places[message.unit]
        if where.standby is not None and where.standby.incarnation == message.incarnation:
            # The primary continues. Another standby begins with a copy.
            self._places.change(message.unit, replace(where, standby=None))
            return self._place_free_units() or self._announce()
        if where.incarnation != message.incarnation:
            return []
        if self._places.is_equal(message.unit) and where.standby is not None and is_in_step(where.standby):
            # The other half continues. If it fails for the same reason, it reports that itself.
            self._places.take_over(message.unit)
            return self._announce()
        return [StopQuery(message.reason)]

    def standby_in_step(self, node: str, message: StandbyInStep) -> list[Effect]:
        """Note that the new half of a pair has everything that the other half has, so all may read from it."""
        where = self._places[message.unit]
        standby = where.standby
        if where.node != node or standby is None or standby.incarnation != message.standby or is_in_step(standby):
            return []
        self._places.change(message.unit, replace(where, standby=replace(standby, in_step=True)))
        return self._announce()

    def standby_ready(self, message: StandbyReady) -> bool:
        """Note that a standby can take over. Return False if it is no longer the unit's standby."""
        where = self._places[message.unit]
        standby = where.standby
        if standby is None or standby.incarnation != message.standby:
            return False
        self._places.note(message.unit, replace(where, standby=replace(standby, has_copy=True)))
        return True

    def unit_recovered(self, message: UnitRecovered) -> None:
        """Note that a restarted unit has caught up."""
        if self._places[message.unit].incarnation == message.incarnation:
            self._places.caught_up(message.unit)

    def replicas_at(self, unit: str, nodes: Mapping[str, int]) -> None:
        """Note how many bytes of a unit's checkpoint each node has nearby.

        The unit is recovered where most of them are.
        """
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
            # After further losses, units are placed on the remaining nodes.
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
