"""Play scenarios of replicas on the coordinator's core, and print every transition and order."""

from __future__ import annotations

from support.play import USAGE, Play, record
from support.scenario_file import Command

from peacefs.coordinator.cluster.commands import Order
from peacefs.coordinator.cluster.core import Ticked
from peacefs.coordinator.cluster.repair import ReplicaCopy
from peacefs.coordinator.cluster.replica_states import ReplicaEvent, ReplicaState
from peacefs.coordinator.metadata.model import ChunkRecord, Mode
from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.messages import DeleteChunks, Heartbeat, Replica, ReportChunks


class ReplicaScenes:
    """A cluster, its clock, and the events of the current command."""

    def __init__(self) -> None:
        self._play = Play()
        self._play.replicas.tell = self._transition
        self._lines: list[str] = []
        self._copies: list[ReplicaCopy] = []
        self._began_s = self._play.now_s

    def run(self, command: Command) -> list[str]:
        """Carry out a command and return what it prints."""
        self._lines = []
        self._began_s = self._play.now_s
        getattr(self, f"_{command.verb}")(command)
        return self._lines

    def _tell(self, line: str) -> None:
        passed_s = self._play.now_s - self._began_s
        self._lines.append(f"{passed_s:5.1f} s  {line}" if passed_s else line)

    def _transition(
        self, chunk: ChunkId, node: NodeId, before: ReplicaState, event: ReplicaEvent, after: ReplicaState
    ) -> None:
        self._tell(f"{chunk} on {node}: {before.name} --{event.name}--> {after.name}")

    # -- commands ----------------------------------------------------------------------------------

    def _join(self, command: Command) -> None:
        self._play.join(
            *command.arguments, rack=command.options.get("rack", "/rack-1"), holding=_replicas(command, "holding")
        )

    def _open(self, command: Command) -> None:
        self._play.open_for_business()

    def _load(self, command: Command) -> None:
        """Load a chunk that the coordinator knew at its start."""
        self._play.cluster.load([_record(command)])

    def _publish(self, command: Command) -> None:
        """Complete a file with the chunk; `on` gave receipts."""
        self._play.cluster.published([_record(command)])

    def _free(self, command: Command) -> None:
        """Delete the file."""
        chunk = int(command.arguments[0])
        known = self._play.cluster.chunks.get(chunk)
        assert known is not None
        freed = ChunkRecord(chunk, known.version, known.length, known.replication, ())
        self._orders(self._play.cluster.freed(self._play.now_s, [freed]))

    def _says(self, command: Command) -> None:
        """Handle a datanode's heartbeat."""
        added, removed, corrupt = (list(_replicas(command, name)) for name in ("added", "removed", "corrupt"))
        beat = Heartbeat(USAGE, added=added, removed=removed, corrupt=corrupt)
        (node,) = command.arguments
        self._orders(self._play.cluster.heartbeat(self._play.now_s, node, beat))

    def _reports(self, command: Command) -> None:
        """Handle a datanode's full report, as after a start."""
        (node,) = command.arguments
        whole = ReportChunks(list(_replicas(command, "holding")), last=True)
        self._orders(self._play.cluster.report(self._play.now_s, node, whole))

    def _silent(self, command: Command) -> None:
        self._play.beating -= set(command.arguments)

    def _speaks(self, command: Command) -> None:
        self._play.beating |= set(command.arguments)

    def _maintenance(self, command: Command) -> None:
        for node in command.arguments:
            self._play.cluster.set_mode(node, Mode.MAINTENANCE)

    def _pass(self, command: Command) -> None:
        """Let time pass; print the core's orders."""
        for ticked in self._play.ticks(float(command.arguments[0].removesuffix("s"))):
            self._ticked(ticked)

    def _copied(self, command: Command) -> None:
        """Report that the ordered copy to a datanode is done."""
        self._play.copied(self._taken(command))

    def _failed(self, command: Command) -> None:
        """Report that the ordered copy to a datanode failed."""
        self._play.cluster.copy_finished(self._taken(command).chunk, copied=False)

    # -- what is printed ---------------------------------------------------------------------------

    def _taken(self, command: Command) -> ReplicaCopy:
        chunk, target = command.arguments
        (copy,) = [each for each in self._copies if each.chunk == int(chunk) and each.target == target]
        self._copies.remove(copy)
        return copy

    def _ticked(self, ticked: Ticked) -> None:
        for transition in ticked.transitions:
            self._tell(f"{transition.node}: {transition.before.name} -> {transition.after.name}")
        for copy in ticked.copies:
            self._copies.append(copy)
            self._tell(f"order {copy.source}: copy {copy.chunk} to {copy.target}")
        for question in ticked.questions:
            chunks = ", ".join(str(each.chunk) for each in question.message.challenges)
            self._tell(f"ask {question.node}: prove {chunks}")
        self._orders(ticked.orders)

    def _orders(self, orders: list[Order]) -> None:
        for order in orders:
            if isinstance(order.message, DeleteChunks):
                chunks = ", ".join(str(each.chunk) for each in order.message.replicas)
                self._tell(f"order {order.node}: delete {chunks}")
            else:
                self._tell(f"order {order.node}: {type(order.message).__name__}")


def _record(command: Command) -> ChunkRecord:
    (chunk,) = command.arguments
    return record(
        int(chunk), command.number("replication", 3), command.names("on"), version=command.number("version", 1)
    )


def _replicas(command: Command, option: str) -> tuple[Replica, ...]:
    """Return replicas that are named as `chunk` or `chunk@version`."""
    found = []
    for name in command.names(option):
        chunk, _, version = name.partition("@")
        found.append(Replica(int(chunk), int(version or 1), 1000))
    return tuple(found)
