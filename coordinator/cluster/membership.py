"""Membership: the datanodes, their states, and which are in service. Pure: events and `now` in, transitions out.

    (unknown) --register--> ALIVE --3 s of silence--> SUSPECT --10 s--> DEAD --register--> ALIVE
                              ^-------heartbeat----------'

A datanode that announces its stop is SUSPECT at once, until it registers again or is dead. Suspect datanodes and
those that an operator takes out of service get no new writes. The replicas of a dead datanode count as lost, and
it must register again with a full report. A pause of the coordinator itself does not count as silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf

from peacefs.coordinator.limits import suspect_after_s
from peacefs.coordinator.metadata.model import Mode
from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import dead_after_s
from peacefs.protocol.messages import DiskReport, Hop, Register, Usage


class State(Enum):
    ALIVE = "alive"
    SUSPECT = "suspect"
    DEAD = "dead"


@dataclass(slots=True)
class Node:
    """A datanode: its registration and its latest reports."""

    registration: Register
    usage: Usage
    heard_s: float
    #: The rack that the cluster assigns; it may differ from the datanode's own (`network.ClusterNetwork`).
    rack: str
    state: State = State.ALIVE
    #: True once its full report has arrived.
    reported: bool = False
    #: True once it has said that it is being stopped.
    stopping: bool = False
    disks: list[DiskReport] = field(default_factory=list)
    id: NodeId = field(init=False)
    hop: Hop = field(init=False)

    def __post_init__(self) -> None:
        self.id = self.registration.node
        self.hop = Hop(self.id, self.registration.data_host, self.registration.data_port)

    @property
    def http_name(self) -> str:
        return f"{self.registration.http_host}:{self.registration.http_port}"


@dataclass(frozen=True, slots=True)
class Transition:
    node: NodeId
    before: State
    after: State


class Membership:
    """All datanodes that have registered in this epoch, and the operators' decisions about datanodes.

    `Cluster` feeds it registrations, heartbeats and ticks. A datanode never leaves DEAD except by `register`.
    """

    def __init__(self) -> None:
        self._nodes: dict[NodeId, Node] = {}
        #: Datanodes whose credentials are revoked, registered or not.
        self._revoked: set[NodeId] = set()
        self._modes: dict[NodeId, tuple[Mode, float]] = {}
        self._ticked_s: float | None = None
        # Caches; None if outdated.
        self._in_service: tuple[Node, ...] | None = None
        self._all: tuple[Node, ...] | None = None
        self._by_host: dict[str, list[Node]] | None = None

    def register(self, now_s: float, registration: Register, rack: str | None = None) -> Node:
        """Add a new or returning datanode. Its rack is `rack`, or by default the one that it states."""
        node = Node(registration, registration.usage, now_s, registration.rack if rack is None else rack)
        self._nodes[node.id] = node
        self._in_service = self._all = self._by_host = None
        return node

    def revoke(self, node_id: NodeId) -> None:
        """Count a datanode as dead. The caller must refuse its registrations until `readmit`."""
        self._revoked.add(node_id)
        node = self._nodes.get(node_id)
        if node is not None:
            node.state = State.DEAD
            self._in_service = None

    def readmit(self, node_id: NodeId) -> None:
        self._revoked.discard(node_id)

    def is_revoked(self, node_id: NodeId) -> bool:
        return node_id in self._revoked

    def move(self, node_id: NodeId, rack: str) -> None:
        self._nodes[node_id].rack = rack
        self._in_service = None

    def heard(self, now_s: float, node_id: NodeId, usage: Usage | None = None) -> bool:
        """Note a sign of life. Return False if the node has to register first."""
        node = self._nodes.get(node_id)
        if node is None or node.state is State.DEAD:
            return False
        node.heard_s = now_s
        if node.state is not State.ALIVE and not node.stopping:
            node.state = State.ALIVE
            self._in_service = None
        if usage is not None:
            node.usage = usage
        return True

    def stops(self, node_id: NodeId) -> None:
        """Note that a datanode is being stopped, so that no new writes are sent to it. It must not be dead."""
        node = self._nodes[node_id]
        node.stopping, node.state = True, State.SUSPECT
        self._in_service = None

    def tell_disks(self, node_id: NodeId, disks: list[DiskReport]) -> None:
        """Store the reported state of a datanode's disks."""
        self._nodes[node_id].disks = disks

    def tick(self, now_s: float) -> list[Transition]:
        """Find datanodes that have been silent for too long. Call this several times a second."""
        self._forgive_own_pause(now_s)
        transitions = []
        for node in self._nodes.values():
            after = self._judge(node, now_s)
            if after is not node.state:
                transitions.append(Transition(node.id, node.state, after))
                node.state = after
                self._in_service = None
        return transitions

    @staticmethod
    def _judge(node: Node, now_s: float) -> State:
        silence_s = now_s - node.heard_s
        if node.state is State.DEAD or silence_s >= dead_after_s:
            return State.DEAD
        return State.SUSPECT if node.stopping or silence_s >= suspect_after_s else State.ALIVE

    def _forgive_own_pause(self, now_s: float) -> None:
        gap_s = 0.0 if self._ticked_s is None else now_s - self._ticked_s
        self._ticked_s = now_s
        if gap_s > suspect_after_s / 2:
            for node in self._nodes.values():
                node.heard_s += gap_s

    def set_mode(self, node_id: NodeId, mode: Mode, ends_s: float = inf) -> None:
        """Note an operator's decision, which holds until `ends_s` even if the datanode is not registered."""
        self._modes[node_id] = mode, ends_s
        self._in_service = None

    def mode(self, node_id: NodeId) -> Mode:
        return self._modes[node_id][0] if node_id in self._modes else Mode.IN_SERVICE

    def out_of_service(self) -> list[NodeId]:
        """Return the datanodes that an operator has taken out of service."""
        return [node for node, (mode, _ends_s) in self._modes.items() if mode is not Mode.IN_SERVICE]

    def take_ended(self, now_s: float) -> list[NodeId]:
        """Put datanodes whose time out of service has ended back into service, and return them."""
        ended = [node for node, (_mode, ends_s) in self._modes.items() if ends_s <= now_s]
        for node in ended:
            del self._modes[node]
            self._in_service = None
        return ended

    def get(self, node_id: NodeId) -> Node | None:
        return self._nodes.get(node_id)

    def all(self) -> Sequence[Node]:
        """Return all datanodes, sorted by id."""
        if self._all is None:
            self._all = tuple(sorted(self._nodes.values(), key=lambda node: node.id))
        return self._all

    def on_host(self, host: str) -> Sequence[Node]:
        """Return the datanodes on a host."""
        if self._by_host is None:
            self._by_host = {}
            for node in self.all():
                self._by_host.setdefault(node.registration.data_host, []).append(node)
        return self._by_host.get(host, ())

    def space(self) -> Usage:
        """Return the capacity, use and room of all datanodes that are not dead."""
        living = [node.usage for node in self._nodes.values() if node.state is not State.DEAD]
        return Usage(
            sum(usage.capacity_bytes for usage in living),
            sum(usage.used_bytes for usage in living),
            sum(usage.available_bytes for usage in living),
        )

    def alive(self) -> list[Node]:
        """Return the datanodes that are ALIVE, sorted by id."""
        return [node for node in self.all() if node.state is State.ALIVE]

    def in_service(self) -> tuple[Node, ...]:
        """Return the datanodes that may get new replicas. The tuple stays the same object until it changes."""
        if self._in_service is None:
            self._in_service = tuple(node for node in self.alive() if self.mode(node.id) is Mode.IN_SERVICE)
        return self._in_service


class AdminState(Enum):
    """A datanode's progress in leaving service: HDFS's AdminStates."""

    IN_SERVICE = "in service"
    DECOMMISSIONING = "decommissioning"
    DECOMMISSIONED = "decommissioned"
    ENTERING_MAINTENANCE = "entering maintenance"
    IN_MAINTENANCE = "in maintenance"


#: Counts by the operator's decision and by whether the datanode is drained (no chunk needs it any more).
ADMIN_STATES = {
    (Mode.IN_SERVICE, False): AdminState.IN_SERVICE,
    (Mode.IN_SERVICE, True): AdminState.IN_SERVICE,
    (Mode.DECOMMISSION, False): AdminState.DECOMMISSIONING,
    (Mode.DECOMMISSION, True): AdminState.DECOMMISSIONED,
    (Mode.MAINTENANCE, False): AdminState.ENTERING_MAINTENANCE,
    (Mode.MAINTENANCE, True): AdminState.IN_MAINTENANCE,
}
