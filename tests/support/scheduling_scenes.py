"""Play scenarios of write sets on the scheduler, and print grants, refusals, questions and waiting writers."""

from __future__ import annotations

from collections.abc import Iterable

from support.scenario_file import Command
from support.scheduled import Scheduled

from peacefs.coordinator.scheduling.write_sets import Ask, Effect, InFlight, Push, Refuse
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import MIB


class SchedulingScenes:
    """A scheduler, its clock, and the results of the current command."""

    def __init__(self) -> None:
        self._scheduled: _ToldScheduled

    def run(self, command: Command) -> list[str]:
        """Carry out a command and return what it prints."""
        if command.verb == "datanodes":
            self._scheduled = _ToldScheduled(
                nodes=int(command.arguments[0]),
                streams_per_node=command.number("streams", 1),
                policy=command.options.get("policy", "express"),
            )
            return []
        told = self._scheduled.told
        told.clear()
        try:
            getattr(self, f"_{command.verb}")(command)
        except PeacefsError as error:
            told.append(f"{type(error).__name__}: {error.message}")
        return list(told)

    # -- commands ----------------------------------------------------------------------------------

    def _state(self, command: Command) -> None:
        """State how many chunks a writer has to write."""
        (name,) = command.arguments
        self._scheduled.state(
            name,
            command.number("chunks"),
            replication=command.number("replication", 3),
            chunk_bytes=command.number("mib", 4) * MIB,
            exclude=command.names("exclude"),
            to_come_bytes=command.number("to_come_mib") * MIB,
        )

    def _ends(self, command: Command) -> None:
        self._scheduled.ends(self._grant(command.arguments[0]))

    def _breaks(self, command: Command) -> None:
        """Report that the stream ended before the chunk was complete."""
        self._scheduled.ends(self._grant(command.arguments[0]), completed=False)

    def _denies(self, command: Command) -> None:
        """Report that datanodes do not receive this chunk."""
        grant = self._grant(command.arguments[0])
        for node in command.arguments[1:]:
            self._scheduled.denies(node, grant)

    def _has(self, command: Command) -> None:
        """Report that a datanode receives the chunk."""
        grant = self._grant(command.arguments[0])
        for node in command.arguments[1:]:
            self._scheduled.has(node, grant, received=command.number("mib") * MIB)

    def _dies(self, command: Command) -> None:
        for node in command.arguments:
            self._scheduled.dies(node)

    def _policy(self, command: Command) -> None:
        self._scheduled.change_policy(command.arguments[0])

    def _pass(self, command: Command) -> None:
        self._scheduled.now_s += float(command.arguments[0].removesuffix("s"))
        self._scheduled.tick()

    def _waiting(self, command: Command) -> None:
        """Print the queue in order."""
        for queued in self._scheduled.scheduling.queue:
            name = queued.request.name.removeprefix("http ")
            self._scheduled.told.append(f"{name} waits for {len(queued.waiting)}")

    def _grant(self, name: str) -> InFlight:
        """Return a grant in flight by its write set and the writer's number of the chunk: `a/0`."""
        (found,) = [each for each in self._scheduled.scheduling.grants if _name(each) == name]
        return found


class _ToldScheduled(Scheduled):
    def __init__(self, *, nodes: int, streams_per_node: int, policy: str) -> None:
        self.told: list[str] = []
        super().__init__(nodes=nodes, streams_per_node=streams_per_node, policy=policy)

    def carry_out(self, effects: Iterable[Effect]) -> list[str]:
        effects = list(effects)
        for effect in effects:
            match effect:
                case Push(grant=grant):
                    self.told.append(f"grant {_name(grant)}: {' -> '.join(grant.nodes)}")
                case Refuse(write_set=name):
                    self.told.append(f"refuse {name.removeprefix('http ')}")
                case Ask(node, chunks):
                    asked = [_name(each) for each in self.scheduling.grants if each.chunk in chunks]
                    self.told.append(f"ask {node}: do you receive {', '.join(asked)}?")
        return super().carry_out(effects)


def _name(grant: InFlight) -> str:
    return f"{grant.write_set.removeprefix('http ')}/{grant.index}"
