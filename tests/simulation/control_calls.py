"""Control calls in the simulated world: requests and replies take time, and may be lost, late or duplicated.

A message on a datanode's link goes to one coordinator. Any other message goes to one coordinator after another
until one answers, as with our clients and gateways.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from simulation.simulated_network import StreamMessage

from peacefs.protocol.errors import PeerTimeout
from peacefs.protocol.messages import Failure, Message
from peacefs.runtime import effects as fx

if TYPE_CHECKING:
    from simulation.world import Node, Task, World

#: Answers a control call of a node: takes the caller's name and the message, and returns a coroutine for the
#: reply.
Coordinator = Callable[[str, Message], Coroutine[Any, Any, Message]]
#: Receives the reply, or the error instead.
Answered = Callable[[Any, BaseException | None], None]

#: The name of the coordinator's node if there is only one.
COORDINATOR = "coordinator"
_NOT_LEADING = ("Standby", "ServiceUnready")
_NEXT_AFTER_S = 0.05
_SILENT_AFTER_S = 1.5


class ControlCalls:
    """Carries calls of nodes to coordinators, which answer while they are up."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.coordinators: dict[str, Coordinator | None] = {}

    def begin(self, task: Task, effect: fx.Call) -> None:
        world = self.world
        turn = world.expect(task, effect.timeout_s, PeerTimeout("the coordinator did not answer in time"))
        to = getattr(effect.message, "coordinator", None)
        if to is None and len(self.coordinators) > 1:
            _Asking(self, task, turn, effect.message).ask()
        else:
            self.carry(
                task.node,
                to or COORDINATOR,
                effect.message,
                lambda result, error: world.give(task, turn, result, error),
            )

    def carry(self, caller: Node, name: str, message: Message, answered: Answered) -> None:
        """Carry one call to one coordinator."""
        world, network = self.world, self.world.network

        def arrive() -> None:
            answering = self.coordinators.get(name)
            if answering is not None and network.carries(caller.name, name):
                work = answering(caller.name, message)
                world.when_done(world.spawn(world.nodes[name], "call", work), reply)

        def reply(handler: Task) -> None:
            is_lost = not network.carries(name, caller.name) or world.loses()
            if is_lost or not handler.is_answered:
                return
            world.later(world.transit_s(), lambda: answered(handler.result, handler.error))

        for _ in range(1 if isinstance(message, StreamMessage) else world.times()):
            if not world.loses():
                world.later(world.transit_s(), arrive)


class _Asking:
    """A call by a client or gateway, which knows the addresses of all coordinators."""

    def __init__(self, calls: ControlCalls, task: Task, turn: int, message: Message) -> None:
        self._calls = calls
        self._task = task
        self._turn = turn
        self._message = message
        self._names = sorted(calls.coordinators)
        calls.world.random.shuffle(self._names)
        self._tries = 0

    def ask(self) -> None:
        """Send the call to the next coordinator, unless the call was answered or its caller has given up."""
        task, world = self._task, self._calls.world
        if task.done or task.turn != self._turn or task.generation != task.node.generation:
            return
        name = self._names[self._tries % len(self._names)]
        self._tries += 1
        number = self._tries

        def answered(result: Any, error: BaseException | None) -> None:
            if isinstance(result, Failure) and result.code in _NOT_LEADING:
                world.later(_NEXT_AFTER_S, lambda: self._go_on(number))
            else:
                world.give(task, self._turn, result, error)

        self._calls.carry(task.node, name, self._message, answered)
        world.later(_SILENT_AFTER_S, lambda: self._go_on(number))

    def _go_on(self, number: int) -> None:
        if number == self._tries:
            self.ask()
