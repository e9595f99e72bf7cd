"""Many large writers, while writers, pipeline heads and the coordinator crash and messages are unreliable.

No datanode ever receives more chunks at a time than the policy allows. Every live writer finishes. At the end all
capacity is free again, and a new writer is served. `seeds` says how to play more.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from simulation.client_steps import read, stated, write
from simulation.seeds import seeds
from simulation.simulated_cluster import SimulatedCluster
from simulation.simulated_network import Network
from simulation.terms import CHUNK_BYTES
from simulation.world import Node
from support.long_runs import often

from peacefs.coordinator.limits import grant_open_s, repair_timeout_s
from peacefs.coordinator.scheduling.scheduler import Scheduling
from peacefs.coordinator.scheduling.write_sets import InFlight, write_set_silence_s
from peacefs.peace.policies.express import ExpressPolicy
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import grant_clock_slack_s
from peacefs.protocol.messages import Message, StateWriteSet
from peacefs.runtime import effects as fx

POLICIES = ("express", "paper", "random", "flow")
WRITERS = 10
#: The number of files per writer.
FILES = often(2, 3)
#: The number of attempts, as for a Spark task.
ATTEMPTS = 4
SLOTS = 2
#: Maximum time until copies that are no longer needed end.
_LAST_COPIES_S = 10.0
#: Delays are long enough that some grants arrive after they have expired.
HOSTILE = Network(lose=0.01, duplicate=0.05, delay=0.02, delay_s_max=grant_open_s + 20.0)


class Story:
    """A cluster, its writers, and the faults."""

    def __init__(self, seed: int, policy: str) -> None:
        self.random = Random(seed)
        self.cluster = SimulatedCluster(seed, datanodes=7, policy=policy, streams_per_node=SLOTS)
        self.world = self.cluster.world
        self.cluster.until_ready()
        self.world.network = HOSTILE
        self.is_bounded = policy == "express"
        self.written: dict[str, bytes] = {}
        self.failed: list[PeacefsError] = []
        self.crashes = 0
        self.most = 0
        #: Chunks that their writers have abandoned; a pipeline head may notice that late.
        self.given_up: set[int] = set()
        answer = self.cluster.coordinator.answer

        async def overhear(caller: str, message: Message) -> Message:
            if isinstance(message, StateWriteSet):
                self.given_up.update(message.abandoned)
            return await answer(caller, message)

        self.cluster.coordinator.answer = overhear  # type: ignore[method-assign]
        self.world.coordinator = overhear
        self.world.before_effect = self._look

    # -- writers -----------------------------------------------------------------------------------

    def write_much(self) -> None:
        """Run the writers until every live one has finished."""
        names = [f"client-{number}" for number in range(WRITERS)]
        tasks = [self.cluster.start(self.cluster.client(name), name, self._writer(name)) for name in names]
        self._harm()
        assert self.world.run(lambda: all(task.done for task in tasks), limit_s=3000.0), "somebody waits for ever"

    def _writer(self, name: str) -> fx.Steps[None]:
        random = Random(self.random.random())
        for number in range(FILES):
            yield from fx.sleep(random.uniform(0.0, 5.0))
            # Every chunk is large enough to need a slot.
            length = random.randint(1, 4) * CHUNK_BYTES + random.choice((0, 300 * 1024))
            path, data = f"/{name}/{number}", random.randbytes(length)
            for attempt in range(ATTEMPTS):
                try:
                    yield from random.choice((write, stated))(path, data, f"{name}-{number}-{attempt}")
                    self.written[path] = data
                    break
                except PeacefsError as error:
                    self.failed.append(error)
                    yield from fx.sleep(random.uniform(0.5, 3.0))

    # -- faults ------------------------------------------------------------------------------------

    def _harm(self) -> None:
        self._harming = True
        self.world.later(self.random.uniform(0.2, 3.0), self._strike)

    def _strike(self) -> None:
        if not self._harming:
            return
        self.crashes += 1
        heads = [grant.nodes[0] for grant in self._grants()]
        match self.random.choice(("writer", "head", "head", "coordinator")):
            case "writer":
                writers = [
                    node for name, node in self.world.nodes.items() if name.startswith("client") and node.up
                ]
                if len(writers) > WRITERS // 2:
                    self.world.crash(self.random.choice(writers))
            case "head" if heads:
                victim = self.cluster.coordinator.datanodes[self.random.choice(heads)]
                self._crash(victim.node, victim.crash, victim.start)
            case "coordinator":
                coordinator = self.cluster.coordinator
                self._crash(coordinator.node, coordinator.crash, coordinator.start)
        self.world.later(self.random.uniform(1.0, 15.0), self._strike)

    def _crash(self, node: Node, crash: Callable[[], None], start: Callable[[], None]) -> None:
        if node.up:
            crash()
            self.world.later(self.random.choice((0.5, 3.0, 14.0)), start)

    def calm_down(self) -> None:
        """End all faults, and wait until unused grants have expired."""
        self._harming = False
        self.world.network = Network()
        nodes = [self.cluster.coordinator.node, *(datanode.node for datanode in self.cluster.datanodes)]
        assert self.world.run(lambda: all(node.up for node in nodes), limit_s=30.0)
        self.cluster.until_ready()
        self.world.run(lambda: False, limit_s=HOSTILE.delay_s_max)
        lapse_s = grant_open_s + 2 * grant_clock_slack_s + 10.0
        assert self.world.run(lambda: not self._grants(), limit_s=lapse_s + write_set_silence_s), self._grants()
        assert self.world.run(self.cluster.fully_replicated, limit_s=repair_timeout_s + 60.0)
        self.world.run(lambda: False, limit_s=_LAST_COPIES_S)

    # -- invariants --------------------------------------------------------------------------------

    def _grants(self) -> list[InFlight]:
        return list(self.scheduling.grants)

    @property
    def scheduling(self) -> Scheduling:
        return self.cluster.coordinator.files.schedule.scheduling

    def _look(self, node: Node, effect: fx.Effect) -> None:
        """Check the number of chunks that live pipeline heads send to each datanode. Called at each connect."""
        if not self.is_bounded or not isinstance(effect, fx.Connect):
            return
        through: dict[str, int] = {}
        idle = {grant.chunk for grant in self._grants() if grant.is_idle}
        for datanode in self.cluster.datanodes:
            if datanode.node.up:
                for stream in datanode.streams.headed_here():
                    if stream.chunk in self.given_up or stream.chunk in idle:
                        continue
                    for name in stream.nodes:
                        through[name] = through.get(name, 0) + 1
        self.most = max(self.most, *through.values(), 0)
        assert self.most <= SLOTS, f"{through} at {self.world.now_s:.3f} s"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", seeds(2))
def test_large_writers_under_crashes_and_bad_messages_hold_the_capacity_and_leave_none_behind(
    seed: int, policy: str
) -> None:
    print(f"PEACEFS_SEED={seed}, policy {policy}")
    story = Story(seed, policy)
    story.write_much()
    story.calm_down()
    scheduling = story.scheduling
    assert (scheduling.queue, scheduling.chunks_waiting) == ([], 0)
    decides = scheduling._policy
    assert decides.grants_in_flight == []
    if isinstance(decides, ExpressPolicy):
        loads = decides.loads()
        assert all(taken == 0 for taken, _ in [*loads.slots.values(), *loads.links.values()])
    print(f"{len(story.written)} written, {len(story.failed)} failed, {story.crashes} crashes, most {story.most}")
    reader = story.cluster.client("reader")
    assert story.written
    for path, data in story.written.items():
        assert story.world.run_task(story.cluster.start(reader, path, read(path)), limit_s=60.0) == data
    story.world.run_task(
        story.cluster.start(reader, "after", write("/after", bytes(3 * CHUNK_BYTES), "after")), limit_s=30.0
    )
