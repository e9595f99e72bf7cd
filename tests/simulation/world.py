"""A world in one thread under one seed: virtual time, simulated network and disks, and nodes that crash.

Participants are the generators and coroutines of the real code. The world performs their effects one at a time, in
an order that the seed decides. It can crash a node before any effect: the node's tasks stop where they are, its
connections break, and its disk keeps what the rules of the disk say.
"""

from __future__ import annotations

import errno
import heapq
import inspect
import itertools
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from simulation.control_calls import COORDINATOR, ControlCalls, Coordinator
from simulation.greeting import greet
from simulation.shared_descriptors import SharedDescriptor, local_address, port_beside
from simulation.simulated_network import Network, SimulatedConnection, end_of
from store.simulated_disk import DISK_EFFECTS, SimulatedDisk

from peacefs.protocol.errors import BadRequest, PeacefsError, PeerRefused, PeerTimeout, PeerUnreachable
from peacefs.protocol.frames import Frame
from peacefs.protocol.limits import connect_timeout_s
from peacefs.protocol.messages import DescriptorShared, Message
from peacefs.runtime import effects as fx

Steps = Generator[Any, Any, Any] | Coroutine[Any, Any, Any]


#: Late enough that a clock can be set back by decades and still show a valid time.
_WALL_CLOCK_STARTS_S = 1_700_000_000.0
_CLEAN_UP_EFFECTS_MAX = 100
#: The share of written data that is still in the page cache.
_IN_MEMORY = 0.9


class NodeCrashed(BaseException):
    """The type of error of a task whose node has crashed. It is never raised in any task."""


@dataclass(eq=False)
class Node:
    """A machine: a name, a disk, its open connections, and whether it is up."""

    name: str
    disk: SimulatedDisk
    up: bool = True
    #: Extra time for every effect of its disk.
    disk_lag_s: float = 0.0
    generation: int = 0
    listeners: dict[fx.Address, Callable[[SimulatedConnection], Steps]] = field(default_factory=dict)
    connections: list[SimulatedConnection] = field(default_factory=list)
    idle: dict[fx.Address, list[SimulatedConnection]] = field(default_factory=dict)
    #: How far its wall clock is ahead of the world's. It may jump; the monotonic clock does not.
    clock_ahead_s: float = 0.0
    #: Time until which nothing runs here: the process or the machine is stopped.
    paused_until_s: float = 0.0
    #: The wall clock of a task here, if it is not the node's own.
    clock: Callable[[], float] | None = None
    #: Called once each when the node goes down.
    when_down: list[Callable[[], None]] = field(default_factory=list)


@dataclass(eq=False)
class Task:
    """A running participant on a node."""

    node: Node
    name: str
    steps: Steps
    generation: int
    done: bool = False
    result: Any = None
    error: BaseException | None = None
    #: True if a failure of this task ends the whole run.
    is_vital: bool = False
    #: Incremented at every resumption, so that timers of earlier effects are recognized as outdated.
    turn: int = 0
    #: Called when the task has ended.
    when_done: list[Callable[[Task], None]] = field(default_factory=list)

    @property
    def is_answered(self) -> bool:
        """Return whether the task ended by itself, not by a crash."""
        return self.done and not isinstance(self.error, NodeCrashed)


class World:
    """Time, network and nodes of a simulation."""

    def __init__(self, seed: int, network: Network) -> None:
        _empty_graveyard()
        self.random = Random(seed)
        self.network = network
        self.now_s = 0.0
        self.nodes: dict[str, Node] = {}
        self.calls = ControlCalls(self)
        self.messages_lost = 0
        self.messages_duplicated = 0
        self.messages_delayed = 0
        self.messages_cut = 0
        self.files_shared = 0
        self.effects_performed = 0
        #: Called before every effect of a node. It may crash the node.
        self.before_effect: Callable[[Node, fx.Effect], None] = lambda node, effect: None
        self._order = itertools.count()
        self._agenda: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._performers: dict[type[fx.Effect], Callable[[Task, Any], None]] = {
            **dict.fromkeys(DISK_EFFECTS, self._perform_on_disk),
            fx.ReadInto: self._perform_on_shared,
            fx.CloseFile: self._close_file,
            fx.Connect: self._connect,
            fx.Send: self._send,
            fx.SendFrames: self._send_frames,
            fx.ReceiveFrames: self._receive,
            fx.ReadFromMemory: self._read_from_memory,
            fx.Spawn: self._spawn,
            fx.SendFile: self._send_file,
            fx.SendDescriptor: self._send_descriptor,
            fx.Receive: self._receive,
            fx.ReceiveDescriptor: self._receive,
            fx.ReceiveMore: lambda task, effect: self._later(
                task, 0.0, end_of(effect.connection).take(effect.count)
            ),
            fx.Release: self._release,
            fx.Close: self._close,
            fx.Call: self.calls.begin,
            fx.Now: lambda task, effect: self._later(task, 0.0, self.now_s),
            fx.WallClock: self._tell_wall_clock,
            fx.Sleep: lambda task, effect: self._later(task, effect.seconds),
            fx.Wait: self._wait,
        }

    @property
    def coordinator(self) -> Coordinator | None:
        """The handler of calls, if there is only one coordinator."""
        return self.calls.coordinators.get(COORDINATOR)

    @coordinator.setter
    def coordinator(self, answering: Coordinator | None) -> None:
        self.calls.coordinators[COORDINATOR] = answering

    # -- nodes and tasks ---------------------------------------------------------------------------

    def add_node(self, name: str) -> Node:
        node = self.nodes[name] = Node(name, SimulatedDisk(Random(self.random.random())))
        return node

    def spawn(self, node: Node, name: str, steps: Steps, *, is_vital: bool = False) -> Task:
        task = Task(node, name, steps, node.generation, is_vital=is_vital)
        self._at(self.now_s, self._resume, task, None, None, 0)
        return task

    def crash(self, node: Node) -> None:
        """Turn a node off: all tasks stop, unsynced data may be lost, and peers see broken connections."""
        node.up = False
        node.paused_until_s = 0.0
        node.generation += 1
        node.listeners.clear()
        node.idle.clear()
        for connection in node.connections:
            self._break(connection)
        node.connections.clear()
        notices, node.when_down = node.when_down, []
        for notice in notices:
            notice()
        node.disk.crash()

    def restart(self, node: Node) -> None:
        node.up = True

    def run(self, until: Callable[[], bool], *, limit_s: float, look_s: float = 0.0) -> bool:
        """Let time pass until the condition holds (True) or `limit_s` virtual seconds are over (False).

        With `look_s`, check the condition only that often, for conditions that are slow to compute.
        """
        end_s, looks_at_s = self.now_s + limit_s, self.now_s
        while True:
            if self.now_s >= looks_at_s:
                if until():
                    return True
                looks_at_s = self.now_s + look_s
            if not self._agenda or self._agenda[0][0] > end_s:
                self.now_s = end_s
                return until()
            self.now_s, _order, action, of = heapq.heappop(self._agenda)
            action(*of)

    def run_task(self, task: Task, *, limit_s: float) -> Any:
        """Run until a task has ended. Return its result, or raise its error."""
        assert self.run(lambda: task.done, limit_s=limit_s), f"{task.name} is still under way after {limit_s} s"
        if task.error is not None:
            raise task.error
        return task.result

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Schedule an action outside the simulated nodes."""
        self._at(self.now_s + delay_s, action)

    def give(self, task: Task, turn: int, result: Any, error: BaseException | None) -> None:
        """Resume a task with a result, if it still waits since that turn."""
        self._resume(task, result, error, turn)

    def expect(self, task: Task, within_s: float, error: BaseException) -> int:
        """Raise the error in the task unless a result comes in time. Return the task's turn, for `give`."""
        self._later(task, within_s, error=error)
        return task.turn

    def when_done(self, task: Task, action: Callable[[Task], None]) -> None:
        """Call `action` once a task has ended, for whatever reason."""
        if task.done:
            action(task)
        else:
            task.when_done.append(action)

    # -- scheduled events --------------------------------------------------------------------------

    def _at(self, time_s: float, action: Callable[..., None], *of: Any) -> None:
        heapq.heappush(self._agenda, (time_s, next(self._order), action, of))

    def _later(self, task: Task, delay_s: float, result: Any = None, error: BaseException | None = None) -> None:
        self._at(self.now_s + delay_s, self._resume, task, result, error, task.turn)

    def _resume(self, task: Task, result: Any, error: BaseException | None, turn: int) -> None:
        if task.done or task.turn != turn:
            return
        if task.generation != task.node.generation:
            self._end(task)
            return
        if task.node.paused_until_s > self.now_s:
            if _has_not_begun(task.steps):
                # The run may end before the task begins.
                _graveyard.append(task.steps)
            self._at(task.node.paused_until_s, self._resume, task, result, error, turn)
            return
        task.turn += 1
        try:
            effect = task.steps.send(result) if error is None else task.steps.throw(error)
        except StopIteration as stop:
            if task.generation != task.node.generation:
                # The last step crashed the task's own node, so its result is lost.
                self._end(task)
            else:
                task.result = stop.value
                self._finish(task)
            return
        except (PeacefsError, OSError) as fault:
            if task.is_vital:
                raise AssertionError(f"{task.name} failed") from fault
            task.error = fault
            self._finish(task)
            return
        except Exception:
            if task.generation == task.node.generation:
                raise
            self._end(task)
            return
        self.effects_performed += 1
        self.before_effect(task.node, effect)
        if task.generation != task.node.generation:
            self._end(task)
            return
        self._performers[type(effect)](task, effect)

    def _finish(self, task: Task) -> None:
        task.done = True
        for action in task.when_done:
            self._at(self.now_s, action, task)

    def _end(self, task: Task) -> None:
        """Stop the task of a crashed node between two effects, without running its clean-up code."""
        task.error = NodeCrashed()
        self._finish(task)
        if _has_not_begun(task.steps):
            # A coroutine that has not begun has nothing to clean up.
            task.steps.close()
        _graveyard.append(task.steps)

    # -- effects -----------------------------------------------------------------------------------

    def _perform_on_disk(self, task: Task, effect: fx.Effect) -> None:
        self._perform_on(task.node.disk, task, effect)

    def _perform_on_shared(self, task: Task, effect: fx.ReadInto) -> None:
        assert isinstance(effect.file, SharedDescriptor)
        self._perform_on(effect.file, task, effect)

    def _close_file(self, task: Task, effect: fx.CloseFile) -> None:
        disk = effect.file if isinstance(effect.file, SharedDescriptor) else task.node.disk
        self._perform_on(disk, task, effect)

    def _perform_on(self, disk: SimulatedDisk | SharedDescriptor, task: Task, effect: fx.Effect) -> None:
        delay_s = task.node.disk_lag_s + self.random.uniform(0.0001, 0.002)
        try:
            result = disk.perform(effect)
        except OSError as fault:
            self._later(task, delay_s, error=fault)
        else:
            self._later(task, delay_s, result)

    def _tell_wall_clock(self, task: Task, _effect: fx.WallClock) -> None:
        clock = task.node.clock
        self._later(task, 0.0, clock() if clock else self.wall_clock_s(task.node))

    def _wait(self, task: Task, effect: fx.Wait) -> None:
        turn = task.turn
        effect.ticket.when_fired(lambda: self._at(self.now_s, self._resume, task, True, None, turn))
        self._later(task, effect.timeout_s, False)

    # -- network -----------------------------------------------------------------------------------

    def _latency_s(self) -> float:
        return self.random.uniform(0.0001, 0.003)

    def transit_s(self) -> float:
        """Return the transit time of the next message."""
        late = self._happens(self.network.delay)
        self.messages_delayed += late
        return self._latency_s() + (self.random.uniform(0.0, self.network.delay_s_max) if late else 0.0)

    def times(self) -> int:
        """Return the number of times that the next message arrives, unless it is lost."""
        twice = self._happens(self.network.duplicate)
        self.messages_duplicated += twice
        return 2 if twice else 1

    def loses(self) -> bool:
        """Return whether the next message is lost."""
        lost = self._happens(self.network.lose)
        self.messages_lost += lost
        return lost

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self.random.random() < chance

    def wall_clock_s(self, node: Node) -> float:
        return _WALL_CLOCK_STARTS_S + self.now_s + node.clock_ahead_s

    def _connect(self, task: Task, effect: fx.Connect) -> None:
        idle = task.node.idle.get(effect.address, [])
        while idle:
            kept = idle.pop()
            if not kept.broken:
                self._later(task, 0.0, kept)
                return
        port, is_local = port_beside(effect.address)
        for node in self.nodes.values():
            serve = node.listeners.get(port)
            if serve is not None and self.network.separates(task.node, node):
                self._later(task, connect_timeout_s, error=PeerTimeout(f"{effect.name} did not answer in time"))
                return
            if serve is not None and node.up:
                try:
                    known, knows = greet(
                        task.node.name,
                        is_service=bool(task.node.listeners),
                        meant=effect.name,
                        address=effect.address,
                        acceptor=node.name,
                    )
                except PeerRefused as refusal:
                    self._later(task, self._latency_s(), error=refusal)
                    return
                here, there = (
                    SimulatedConnection(task.node, effect.name),
                    SimulatedConnection(node, task.node.name),
                )
                here.other, there.other = there, here
                here.seal(known.frame_keys)
                there.seal(knows.frame_keys)
                here.address = effect.address
                there.is_local = is_local
                if not is_local and self._happens(self.network.one_host):
                    here.local_address = local_address(port)
                task.node.connections.append(here)
                node.connections.append(there)
                self.spawn(node, f"serving {task.node.name}", serve(there))
                self._later(task, self._latency_s(), here)
                return
        self._later(task, self._latency_s(), error=PeerUnreachable(f"cannot connect to {effect.name}"))

    def _release(self, task: Task, effect: fx.Release) -> None:
        connection = end_of(effect.connection)
        assert connection.address is not None
        task.node.idle.setdefault(connection.address, []).append(connection)
        self._later(task, 0.0)

    def _close(self, task: Task, effect: fx.Close) -> None:
        self._break(end_of(effect.connection))
        # Wake another task that waits at this end.
        self._wake_receiver(end_of(effect.connection))
        self._later(task, 0.0)

    def _send(self, task: Task, effect: fx.Send) -> None:
        connection = end_of(effect.connection)
        if connection.broken:
            self._later(task, 0.0, error=PeerUnreachable(f"the connection to {connection.peer} broke"))
            return
        self._put_on_the_wire(task, connection, connection.wire(effect.message, bytes(effect.payload)))

    def _send_frames(self, task: Task, effect: fx.SendFrames) -> None:
        connection = end_of(effect.connection)
        if connection.broken:
            self._later(task, 0.0, error=PeerUnreachable(f"the connection to {connection.peer} broke"))
            return
        self._put_on_the_wire(task, connection, connection.wire_of(effect.frames))

    def _spawn(self, task: Task, effect: fx.Spawn) -> None:
        self.spawn(task.node, f"beside {task.name}", effect.steps)
        self._later(task, 0.0)

    def _read_from_memory(self, task: Task, effect: fx.ReadFromMemory) -> None:
        """Return each part that is in the page cache, or None for each other part. The choice is random."""
        found: list[bytes | None] = []
        for path, offset, length in effect.parts:
            try:
                data = task.node.disk.perform(fx.ReadPart(path, offset, length))
            except OSError:
                data = b""
            found.append(data if len(data) == length and self.random.random() < _IN_MEMORY else None)
        self._later(task, 0.0, found)

    def _put_on_the_wire(self, task: Task, connection: SimulatedConnection, wire: bytes) -> None:
        other = connection.other
        other.stalled = other.stalled or self.loses() or self.network.separates(task.node, other.node)
        if not other.stalled:
            is_cut = self._happens(self.network.cut)
            if is_cut:
                self.messages_cut += 1
                wire = wire[: self.random.randrange(len(wire))]
            other.arrives_at_s = max(other.arrives_at_s, self.now_s + self.transit_s())
            self._at(other.arrives_at_s, self._arrive, other, wire)
            if is_cut:
                self._break(connection)
        self._later(task, 0.00005)

    def _send_file(self, task: Task, effect: fx.SendFile) -> None:
        try:
            data = task.node.disk.perform(fx.ReadAt(effect.file, effect.offset, effect.length))
            if len(data) < effect.length:
                raise OSError(errno.EIO, "the file has become shorter")
        except OSError as fault:
            self._later(task, 0.0, error=fault)
            return
        self._send(task, fx.Send(effect.connection, effect.message, data, effect.timeout_s))

    def _send_descriptor(self, task: Task, effect: fx.SendDescriptor) -> None:
        connection = end_of(effect.connection)
        if not connection.is_local:
            self._later(task, 0.0, error=BadRequest("open files can be shared only over local sockets"))
            return
        connection.other.descriptors.append(SharedDescriptor(task.node.disk, effect.file))
        self._send(task, fx.Send(connection, effect.message, b"", effect.timeout_s))

    def _arrive(self, connection: SimulatedConnection, wire: bytes) -> None:
        if connection.broken:
            return
        connection.inbox.extend(connection.reader.feed(wire))
        self._wake_receiver(connection)

    def _receive(self, task: Task, effect: fx.Receive | fx.ReceiveDescriptor) -> None:
        connection = end_of(effect.connection)
        connection.receiver = task, task.turn
        connection.reads_descriptor = isinstance(effect, fx.ReceiveDescriptor)
        connection.more_after = effect.more_after if isinstance(effect, fx.ReceiveFrames) else None
        connection.payload_max = effect.payload_max if isinstance(effect, fx.Receive) else None
        self._later(task, effect.timeout_s, error=PeerTimeout(f"{connection.peer} said nothing in time"))
        if connection.inbox or connection.broken:
            self._wake_receiver(connection)

    def _wake_receiver(self, connection: SimulatedConnection) -> None:
        receiver, connection.receiver = connection.receiver, None
        if receiver is None or receiver[0].done or receiver[0].turn != receiver[1]:
            return
        task = receiver[0]
        if connection.inbox:
            come: Any
            frame = connection.inbox.popleft()
            if connection.more_after is not None:
                come = [frame]
                while connection.inbox and connection.more_after(come[-1]):
                    come.append(connection.inbox.popleft())
                self._later(task, 0.0, come)
                return
            come = (
                self._with_descriptor(connection, frame)
                if connection.reads_descriptor
                else connection.begin(frame)
            )
            self._later(task, 0.0, come)
        else:
            self._later(task, 0.0, error=PeerUnreachable(f"{connection.peer} closed the connection"))

    def _with_descriptor(
        self, connection: SimulatedConnection, frame: Frame
    ) -> tuple[Message, SharedDescriptor | None]:
        self.files_shared += isinstance(frame.message, DescriptorShared)
        return frame.message, connection.descriptors.popleft() if isinstance(
            frame.message, DescriptorShared
        ) else None

    def _break(self, connection: SimulatedConnection) -> None:
        """Close a connection. The other side notices after data in transit, unless the network is cut."""
        connection.broken = True
        other = connection.other
        if other.broken or other.stalled or self.network.separates(connection.node, other.node):
            return
        delay_s = max(self.now_s, other.arrives_at_s) + self._latency_s()

        def notice() -> None:
            other.broken = True
            self._wake_receiver(other)

        self._at(delay_s, notice)


#: Generators of crashed tasks. If they were closed, their `finally` blocks would run, so they are kept until the
#: next world begins. They keep their whole world in memory, with its disks.
_graveyard: list[Steps] = []


def _has_not_begun(steps: Steps) -> bool:
    """Return whether this is a coroutine that Python would warn about unless it is closed."""
    return isinstance(steps, Coroutine) and inspect.getcoroutinestate(steps) == inspect.CORO_CREATED


def _empty_graveyard() -> None:
    """Close all kept generators before another world begins. Effects of their clean-up code are ignored."""
    while _graveyard:
        steps = _graveyard.pop()
        for _ in range(_CLEAN_UP_EFFECTS_MAX):
            try:
                steps.close()
                break
            except RuntimeError:
                continue  # it refused to close, and wants another effect
            except Exception:
                break
