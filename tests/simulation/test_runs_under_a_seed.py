"""Successive drivers of one query, while earlier drivers still write, under all kinds of faults.

A superseded run is fenced off (decision 15): none of its later requests is carried out, however late its messages
are and whichever node crashes. What was acknowledged to it stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest
from simulation.client_steps import begin_run, list_names, read
from simulation.hostility import DOUBT_S, check_everything, hostile_network, let_calm_down
from simulation.private_directory import OPERATIONS, PrivateDirectory
from simulation.saboteur import ClockMover, DiskBreaker, Saboteur
from simulation.seeds import seeds
from simulation.simulated_cluster import SimulatedCluster
from support.long_runs import often

from peacefs.protocol.errors import FileNotFound, PeacefsError, RunSuperseded
from peacefs.runtime import effects as fx

_ROOT = "/checkpoints/query"
_RUNS = often(3, 4)
_OPERATIONS = often(12, 40)
#: Reads are allowed: the path of any run leads readers to the same place.
_READS = ("read", "read snapshot", "read copy")


@dataclass
class Driver(PrivateDirectory):
    """The driver of one run. It continues after another run has begun, without knowing that."""

    #: Whether another run has been requested, and whether it has certainly begun.
    followed: bool = False
    fenced: bool = False
    refused: int = 0

    def _do(self, what: str, name: str) -> fx.Steps[bool]:
        was_fenced = self.fenced
        try:
            done = yield from super()._do(what, name)
        except RunSuperseded:
            assert self.followed, f"{self.owner} is fenced off and the latest"
            self.refused += 1
            raise
        assert not (done and was_fenced) or what in _READS, f"{self.owner} is fenced off and could {what}"
        return done


def begin(owner: str) -> fx.Steps[str]:
    """Begin a run; repeat the request until it succeeds. Retries return the same run."""
    while True:
        try:
            return (yield from begin_run(_ROOT, "simulated", f"begin-{owner}"))
        except PeacefsError:
            yield from fx.sleep(1.0)


def shown(number: int) -> fx.Steps[dict[str, bytes | None]]:
    """Return all files in the directory of a run's driver, and in its copies."""
    found: dict[str, bytes | None] = {}
    top = f"{_ROOT}/r{number}"
    waiting = [top, f"{top}-copies"]
    while waiting:
        path = waiting.pop()
        try:
            listed = yield from list_names(path)
            for name in listed.files:
                found[f"{path}/{name}"] = yield from read(f"{path}/{name}")
            waiting += [f"{path}/{name}" for name in listed.directories]
            found[path] = None
        except FileNotFound:
            assert path.startswith(top) and path.count("/") == top.count("/"), f"{path} has just been listed"
        except PeacefsError:
            waiting.append(path)
            yield from fx.sleep(1.0)
    return found


@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.evidence("two-drivers")
def test_nothing_of_a_run_that_was_followed_appears_and_what_it_was_told_is_done_stays(seed: int) -> None:
    print(f"seed {seed}")
    cluster = SimulatedCluster(seed, trash_minutes=5)
    world, random = cluster.world, Random(seed)
    cluster.until_ready()
    reader = cluster.client("client-reader")
    world.network = hostile_network()
    saboteur, breaker = Saboteur(cluster, random, effects_between=400), DiskBreaker(cluster, random)
    clocks = ClockMover(cluster, random)
    drivers: list[Driver] = []
    left: list[dict[str, bytes | None]] = []
    tasks = []
    for number in range(_RUNS):
        node = cluster.client(f"client-{number}")
        if drivers:
            drivers[-1].followed = True
        location = world.run_task(cluster.start(node, "begin", begin(node.name)), limit_s=2000.0)
        if drivers:
            drivers[-1].fenced = True
            left.append(world.run_task(cluster.start(reader, "look", shown(number - 1)), limit_s=4000.0))
            _check_left(drivers[-1], number - 1, left[-1])
        driver = Driver(
            node.name,
            [],
            Random(random.random()),
            DOUBT_S,
            place=f"{location}/r{number}",
            operations=tuple(operation for operation in OPERATIONS if operation != "trespass"),
        )
        drivers.append(driver)
        world.run_task(cluster.start(node, "set up", driver.set_up()), limit_s=4000.0)
        tasks.append(cluster.start(node, "work", driver.work(_OPERATIONS)))
        world.run(lambda: False, limit_s=random.uniform(20.0, 400.0))
    for task in tasks:
        world.run_task(task, limit_s=20_000.0)
    saboteur.rest()
    breaker.rest()
    clocks.set_right()
    let_calm_down(cluster)
    for driver in drivers[:-1]:
        driver.operations, refused = ("write",), driver.refused
        world.run_task(cluster.start(cluster.client(driver.owner), "come back", driver.work(3)), limit_s=2000.0)
        assert driver.refused == refused + 3, f"{driver.owner} is fenced off, and was not told so"
    for number, before in enumerate(left):
        after = world.run_task(cluster.start(reader, "look", shown(number)), limit_s=4000.0)
        assert after == before, f"what run {number} left has changed"
    check_everything(cluster, drivers[-1:])
    print(f"{[driver.acknowledged for driver in drivers]}, refused {[driver.refused for driver in drivers]}")


def _check_left(driver: Driver, number: int, found: dict[str, bytes | None]) -> None:
    for name, contents in driver.files.items():
        content = found.get(f"{_ROOT}/r{number}/{name}")
        assert content in contents, f"{driver.owner}/{name} is not what was acknowledged"
