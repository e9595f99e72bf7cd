"""Several units recover at once, each with several readers, while readers, datanodes and the coordinator crash.

At most two units read from a datanode at a time. Every live unit gets its checkpoint. In the end no reads are
counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from simulation.client_requests import Open
from simulation.client_requests import Opened as Found
from simulation.client_steps import write
from simulation.saboteur import Saboteur
from simulation.seeds import seeds
from simulation.simulated_cluster import SimulatedCluster
from simulation.simulated_network import Network
from simulation.terms import CALL_TIMEOUT_S, CHUNK_BYTES, HOP_TIMEOUT_S
from simulation.test_flushing_under_a_seed import patiently
from simulation.world import Node, Task

from peacefs.client.checkpoint.reader import ParallelReading
from peacefs.coordinator.scheduling.read_scheduler import read_grant_silence_s
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import readers_per_datanode_max
from peacefs.protocol.messages import Opened
from peacefs.runtime import effects as fx

_PARTS = 3
_WORKERS = 4


class Recoveries:
    """A checkpoint of several parts, and the units that read it."""

    def __init__(self, seed: int, units: int, *, lose: float = 0.0) -> None:
        self.random = Random(seed)
        self.cluster = SimulatedCluster(seed, datanodes=4, network=Network(lose, one_host=0.4))
        self.world = self.cluster.world
        self.cluster.until_ready()
        writer = self.cluster.client("writer")
        self.parts = [self.random.randbytes(5 * CHUNK_BYTES + part) for part in range(_PARTS)]
        for part, data in enumerate(self.parts):
            steps = patiently(write(f"/part-{part}", data, f"part-{part}"))
            self.world.run_task(self.cluster.start(writer, "write", steps), limit_s=400.0)
        self.units = [self.cluster.client(f"client-{number}") for number in range(units)]
        self.readings: dict[str, ParallelReading] = {}
        self.targets: dict[str, bytearray] = {}
        self.workers: dict[str, list[Task]] = {}
        self.most = 0

    def begin(self) -> None:
        """Start reading in all units at the same time."""
        for unit in self.units:
            opened = self.world.run_task(self.cluster.start(unit, "open", patiently(_open())), limit_s=400.0)
            length = sum(part.layout.length for part in opened)
            target = self.targets[unit.name] = bytearray(length)
            reading = self.readings[unit.name] = ParallelReading(
                unit.name,
                opened,
                memoryview(target),
                _WORKERS,
                small_bytes_max=0,
                hold_s=0.0,
                hop_timeout_s=HOP_TIMEOUT_S,
            )
            self.workers[unit.name] = [
                self.cluster.start(unit, f"worker-{number}", slowly(reading.work()))
                for number in range(reading.workers)
            ]
        self.world.before_effect = self._look

    def finish(self) -> list[Node]:
        """Wait until each live unit has its whole checkpoint. Return these units."""
        alive = [unit for unit in self.units if unit.up]
        for unit in alive:
            for worker in self.workers[unit.name]:
                self.world.run_task(worker, limit_s=1000.0)
            last = self.readings[unit.name].grants.give_back()
            self.world.run_task(self.cluster.start(unit, "last word", last), limit_s=60.0)
            assert bytes(self.targets[unit.name]) == b"".join(self.parts)
        return alive

    def _look(self, node: Node, effect: fx.Effect) -> None:
        if node not in self.units:
            # Only the effects of units change the number of reads.
            return
        at: Counter[str] = Counter()
        for unit in self.units:
            if unit.up:
                at.update(self.readings[unit.name].grants.reads.values())
        self.most = max([self.most, *at.values()])


def slowly(steps: fx.Steps[None]) -> fx.Steps[None]:
    """Pause before each piece, as if chunks were large, so that reads overlap."""
    step: Callable[[], Any] = partial(next, steps)
    while True:
        try:
            effect = step()
        except StopIteration:
            return
        if isinstance(effect, fx.Receive | fx.ReceiveMore | fx.ReadInto):
            yield from fx.sleep(0.05)
        try:
            result = yield effect
        except (PeacefsError, OSError) as fault:
            step = partial(steps.throw, fault)
        else:
            step = partial(steps.send, result)


def _open() -> fx.Steps[list[Opened]]:
    parts = []
    for part in range(_PARTS):
        found = yield from fx.call(Open(f"/part-{part}"), Found, timeout_s=CALL_TIMEOUT_S)
        parts.append(Opened(found.token, found.layout))
    return parts


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.evidence("recovery-storm")
def test_many_units_that_recover_at_once_read_two_at_a_datanode(seed: int) -> None:
    print(f"PEACEFS_SEED={seed}")
    story = Recoveries(seed, units=5)
    story.begin()
    # A unit dies with read grants. The others are served after it has been silent for a while.
    reads = story.cluster.coordinator.files.recovery.reads
    assert story.world.run(lambda: story.most == readers_per_datanode_max, limit_s=60.0)
    assert reads.grants("client-0")
    story.world.crash(story.units[0])
    assert len(story.finish()) == 4
    assert story.most == readers_per_datanode_max
    # Wait a fixed time: waiting for a condition would stop the world in the middle of a tick.
    story.world.run(lambda: False, limit_s=read_grant_silence_s + 2.0)
    assert (reads.readers, reads.at_node) == ([], {})


@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.evidence("recovery-storm")
def test_readers_come_to_their_end_whatever_crashes(seed: int) -> None:
    print(f"PEACEFS_SEED={seed}")
    story = Recoveries(seed, units=3, lose=0.003)
    story.begin()
    saboteur = Saboteur(story.cluster, Random(seed), effects_between=150)
    story.finish()
    saboteur.rest()
    story.world.network.lose = 0.0
    nodes = [story.cluster.coordinator.node, *(datanode.node for datanode in story.cluster.datanodes)]
    assert story.world.run(lambda: all(node.up for node in nodes), limit_s=60.0)
    story.world.run(lambda: False, limit_s=read_grant_silence_s + 2.0)
    assert story.cluster.coordinator.files.recovery.reads.readers == []
    print(f"{saboteur.crashes} crashes, most {story.most}")
