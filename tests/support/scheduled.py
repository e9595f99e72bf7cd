"""A scheduling service driven by hand: statements of writers, reports of heads, and the resulting grants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from peacefs.coordinator.limits import grant_open_s
from peacefs.coordinator.scheduling.scheduler import Scheduling
from peacefs.coordinator.scheduling.write_sets import Ask, Effect, InFlight, Push, WriteSetRequest
from peacefs.peace.policies.express import ExpressPolicy
from peacefs.protocol.errors import NoDatanodes
from peacefs.protocol.ids import Numbering
from peacefs.protocol.limits import MIB, grant_clock_slack_s
from peacefs.protocol.messages import StreamProgress


class Scheduled:
    """Datanodes n0, n1, ... in two racks by turns; writers ask by HTTP from outside the cluster."""

    def __init__(
        self, *, nodes: int = 5, streams_per_node: int = 2, policy: str = "express", seed: int = 1
    ) -> None:
        self.now_s = 100.0
        self.scheduling = Scheduling(Numbering(3), Random(seed), policy=policy, streams_per_node=streams_per_node)
        self._racks = {f"n{number}": f"/rack-{number % 2}" for number in range(nodes)}
        self.carry_out(self.scheduling.use(self.now_s, self.scheduling.undescribed.of(self._racks)))
        self._stated: dict[str, dict[int, int]] = {}
        self.written: set[tuple[str, int]] = set()

    def state(
        self,
        name: str,
        chunks: int,
        *,
        replication: int = 3,
        chunk_bytes: int = 4 * MIB,
        exclude: Sequence[str] = (),
        abandoned: Sequence[int] = (),
        to_come_bytes: int = 0,
    ) -> list[InFlight]:
        """Return the write set's current grants."""
        request = WriteSetRequest(
            f"http {name}",
            None,
            None,
            replication,
            {index: chunk_bytes for index in range(chunks) if (name, index) not in self.written},
            frozenset(exclude),
            tuple(abandoned),
            to_come_bytes=to_come_bytes,
        )
        self.carry_out(self.scheduling.state(self.now_s, request))
        return self.granted(name)

    def granted(self, name: str) -> list[InFlight]:
        return [grant for grant in self.scheduling.grants if grant.write_set == f"http {name}"]

    def ends(self, grant: InFlight, *, node: str | None = None, completed: bool = True) -> None:
        """Report the end of a stream, by the head or another datanode."""
        node = node or grant.nodes[0]
        if completed and node == grant.nodes[0]:
            self.written.add((grant.write_set.removeprefix("http "), grant.index))
        self.carry_out(
            self.scheduling.ended(self.now_s, node, grant.chunk, completed=completed, length=grant.chunk_bytes)
        )

    def denies(self, node: str, grant: InFlight) -> None:
        self.carry_out(self.scheduling.answered(self.now_s, node, [grant.chunk], {}))

    def has(self, node: str, grant: InFlight, *, received: int = 0, waited_s: float = 0.0) -> None:
        """Report that a datanode receives a chunk, with the bytes since the grant and the wait for the writer."""
        seen = StreamProgress(grant.chunk, received, waited_s, grant.granted_s, self.now_s)
        self.carry_out(self.scheduling.answered(self.now_s, node, [grant.chunk], {grant.chunk: seen}))

    def dies(self, node: str) -> None:
        """Declare a datanode dead. It gets no further grants."""
        self.scheduling.died(node)
        del self._racks[node]
        self.carry_out(self.scheduling.use(self.now_s, self.scheduling.undescribed.of(self._racks)))

    def tick(self) -> list[str]:
        """Advance the clock; return the datanodes that are asked about their streams."""
        return self.carry_out(self.scheduling.tick(self.now_s))

    def change_policy(self, name: str) -> None:
        self.carry_out(self.scheduling.change_policy(self.now_s, name))

    def carry_out(self, effects: Iterable[Effect]) -> list[str]:
        asked = []
        for effect in effects:
            if isinstance(effect, Push):
                assert len(set(effect.grant.nodes)) == len(effect.grant.nodes)
            elif isinstance(effect, Ask):
                asked.append(effect.node)
        return asked

    def finish_all(self) -> None:
        """Continue until every writer is done: lost grants lapse, and the rest is written."""
        for _ in range(1000):
            while self.scheduling.has_more:
                self.tick()
            grants = list(self.scheduling.grants)
            if not grants and not self.scheduling.chunks_waiting:
                return
            self.now_s += 1.0
            for grant in grants:
                self.ends(grant)
            self.tick()
        raise AssertionError("there is no end to it")

    # -- whatever may happen -----------------------------------------------------------------------

    def happens(self, event: str, which: int, number: int) -> None:
        """Perform a random event. `which` chooses a writer or a grant."""
        grants = list(self.scheduling.grants)
        grant = grants[which % len(grants)] if grants else None
        match event:
            case "s":
                self._states(f"w{which}", number)
            case "c":
                self._states(f"w{which}", 0)
            case "w" if grant:
                self.ends(grant)
                self.ends(grant)
            case "x" if grant:
                self.ends(grant, completed=False)
            case "l" if grant:
                self.now_s += grant_open_s + 2 * grant_clock_slack_s + 1.0
                for node in grant.nodes:
                    self.denies(node, grant)
            case "d":
                self.scheduling.died(f"n{which}")
            case "t":
                self.now_s += number
                self.tick()

    def _states(self, name: str, chunks: int) -> None:
        try:
            self.state(name, chunks)
        except NoDatanodes:
            assert not self.scheduling.grants

    def busiest(self) -> int:
        """Return the largest number of chunks that one datanode receives."""
        through: dict[str, int] = {}
        for grant in self.scheduling.grants:
            for node in grant.nodes:
                through[node] = through.get(node, 0) + 1
        return max(through.values(), default=0)

    def loads(self) -> list[tuple[int, int]]:
        """Return used and total slots and streams of the policy."""
        policy = self.scheduling._policy
        assert isinstance(policy, ExpressPolicy)
        loads = policy.loads()
        return [*loads.slots.values(), *loads.links.values()]
