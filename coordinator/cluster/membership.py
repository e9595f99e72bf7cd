"""The datanodes, their state and whether they serve. Pure: events and `now` in, transitions out.

    (unknown) --register--> ALIVE --3 s of silence--> SUSPECT --10 s--> DEAD --register--> ALIVE
                              ^-------heartbeat----------'

One that says that it is being stopped is SUSPECT at once, and stays so until it registers again or is dead.
A suspect gets no new writes, nor does one that an operator takes out of service; a dead one's replicas count as
lost. A dead node must register again, with a full report, before it counts. A coordinator that finds that it was
itself paused forgives everybody the time.
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
    """The state of a datanode."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    DEAD = "dead"


@dataclass(slots=True)
class Node:
    """A datanode as it registered, with what it said last."""

    registration: Register
    usage: Usage
    heard_s: float
    #: The rack that the cluster assigns, not always the one that the datanode states (`network.ClusterNetwork`).
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
    """A datanode changed its state."""

    node: NodeId
    before: State
    after: State


class Membership:
    """All datanodes that ever registered in this epoch."""

    def __init__(self) -> None:
        self._nodes: dict[NodeId, Node] = {}
        #: Those whose credentials are revoked, whether they are here or not.
        self._revoked: set[NodeId] = set()
        self._modes: dict[NodeId, tuple[Mode, float]] = {}
        self._ticked_s: float | None = None
        #: None when it has to be found out anew.
        self._in_service: tuple[Node, ...] | None = None
        self._all: tuple[Node, ...] | None = None
        self._by_host: dict[str, list[Node]] | None = None

    def register(self, now_s: float, registration: Register, rack: str | None = None) -> Node:
        """A datanode comes or comes back, on `rack` or on that which it says; its report is still to come."""
        node = Node(registration, registration.usage, now_s, registration.rack if rack is None else rack)
        self._nodes[node.id] = node
        self._in_service = self._all = self._by_host = None
        return node

    def revoke(self, node_id: NodeId) -> None:
        """A datanode is dead whatever it says, until `readmit`."""
        self._revoked.add(node_id)
        node = self._nodes.get(node_id)
        if node is not None:
            node.state = State.DEAD
            self._in_service = None

    def readmit(self, node_id: NodeId) -> None:
        """It may register again."""
        self._revoked.discard(node_id)

    def is_revoked(self, node_id: NodeId) -> bool:
        return node_id in self._revoked

    def move(self, node_id: NodeId, rack: str) -> None:
        """A datanode stands elsewhere than was known."""
        self._nodes[node_id].rack = rack
        self._in_service = None

    def heard(self, now_s: float, node_id: NodeId, usage: Usage | None = None) -> bool:
        """A sign of life. False when the node has to register first."""
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
        """A datanode that is not dead is being stopped: nobody is to be led to it any more."""
        node = self._nodes[node_id]
        node.stopping, node.state = True, State.SUSPECT
        self._in_service = None

    def tell_disks(self, node_id: NodeId, disks: list[DiskReport]) -> None:
        """Return the state of a datanode's disks."""
        self._nodes[node_id].disks = disks

    def tick(self, now_s: float) -> list[Transition]:
        """To be called several times a second; finds out who has been silent for too long."""
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
        """Note an operator's decision; it stands until `ends_s` whether the datanode is there or not."""
        self._modes[node_id] = mode, ends_s
        self._in_service = None

    def mode(self, node_id: NodeId) -> Mode:
        return self._modes[node_id][0] if node_id in self._modes else Mode.IN_SERVICE

    def out_of_service(self) -> list[NodeId]:
        """Return the datanodes for which an operator's decision stands."""
        return [node for node, (mode, _ends_s) in self._modes.items() if mode is not Mode.IN_SERVICE]

    def take_ended(self, now_s: float) -> list[NodeId]:
        """Datanodes whose time out of service is over: they are in service again."""
        ended = [node for node, (_mode, ends_s) in self._modes.items() if ends_s <= now_s]
        for node in ended:
            del self._modes[node]
            self._in_service = None
        return ended

    def get(self, node_id: NodeId) -> Node | None:
        return self._nodes.get(node_id)

    def all(self) -> Sequence[Node]:
        """In an order that does not depend on who registered first."""
        if self._all is None:
            self._all = tuple(sorted(self._nodes.values(), key=lambda node: node.id))
        return self._all

    def on_host(self, host: str) -> Sequence[Node]:
        """Those whose data is on a host."""
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
        """In the order of `all`."""
        return [node for node in self.all() if node.state is State.ALIVE]

    def in_service(self) -> tuple[Node, ...]:
        """Those that may get new replicas: the same tuple until there are others, or one stands elsewhere."""
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


#: By the operator's decision, and by whether no chunk needs the datanode.
ADMIN_STATES = {
    (Mode.IN_SERVICE, False): AdminState.IN_SERVICE,
    (Mode.IN_SERVICE, True): AdminState.IN_SERVICE,
    (Mode.DECOMMISSION, False): AdminState.DECOMMISSIONING,
    (Mode.DECOMMISSION, True): AdminState.DECOMMISSIONED,
    (Mode.MAINTENANCE, False): AdminState.ENTERING_MAINTENANCE,
    (Mode.MAINTENANCE, True): AdminState.IN_MAINTENANCE,
}
