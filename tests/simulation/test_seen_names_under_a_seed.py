"""Nothing that a client was told or has seen is undone: coordinators die between any two steps of log and image.

Every name lives once: it is absent, then present, then gone for good. So each look reveals a stage, and no later
look may find an earlier stage. Readers look while others make changes, and the disk is full at times.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from simulation.client_requests import ListNames, Names, Stat, Stated
from simulation.name_changes import Change
from simulation.seeds import seeds
from simulation.simulated_cluster import SimulatedCluster
from simulation.terms import CALL_TIMEOUT_S
from support.long_runs import often

from peacefs.protocol.errors import FileNotFound, PeacefsError
from peacefs.protocol.messages import Done
from peacefs.runtime import effects as fx

_DIRECTORY = "/d"
_WRITERS, _READERS = 3, 3
_ABSENT, _THERE, _GONE = 0, 1, 2
_PLAYED_S = often(20, 120)


class Lives:
    """The latest stage of each name that any client has seen. `ends` are names whose removal was requested."""

    def __init__(self) -> None:
        self.reached: dict[str, int] = {}
        self.ends: set[str] = set()
        self.looks = self.changes = 0

    def tell(self, name: str, stage: int) -> None:
        self.reached[name] = max(self.reached.get(name, _ABSENT), stage)

    def seen(self, before: dict[str, int], name: str, *, is_there: bool) -> None:
        """Check and record a look at a name. `before` has the stages when the look began."""
        stage = before.get(name, _ABSENT)
        if is_there:
            assert stage != _GONE, f"{name} was gone, and is there again"
            self.tell(name, _THERE)
        elif stage == _THERE:
            assert name in self.ends, f"{name} was there, and nobody has deleted it"
            self.tell(name, _GONE)


def changing(who: str, lives: Lives, random: Random) -> fx.Steps[None]:
    """Make, move and delete names. A name whose change fails is not used again."""
    mine: list[str] = []
    number = 0
    while True:
        yield from fx.sleep(random.choice((0.0, 0.0, 0.01, 0.2)))
        number += 1
        name, asked = f"{who}-{number}", f"{who}-{number}"
        old = random.choice(mine) if mine and random.random() < 0.6 else ""
        if old:
            mine.remove(old)
            lives.ends.add(old)
        is_move = bool(old) and random.random() < 0.5
        path = f"{_DIRECTORY}/{old or name}"
        if is_move:
            change = Change("move", path, "simulated", asked, f"{_DIRECTORY}/{name}")
        else:
            change = Change("delete" if old else "mkdirs", path, "simulated", asked, number=0o755)
        try:
            yield from fx.call(change, Done, timeout_s=CALL_TIMEOUT_S)
        except PeacefsError:
            continue
        lives.changes += 1
        if old:
            lives.tell(old, _GONE)
        if is_move or not old:
            lives.tell(name, _THERE)
            mine.append(name)


def looking(lives: Lives, random: Random) -> fx.Steps[None]:
    while True:
        yield from fx.sleep(random.choice((0.0, 0.0, 0.01, 0.2)))
        before = dict(lives.reached)
        try:
            if before and random.random() < 0.5:
                # Prefer the latest names, which may not be durable yet.
                name = random.choice(list(before)[-6:])
                is_there = yield from _stat(name)
                lives.seen(before, name, is_there=is_there)
            else:
                names = yield from fx.call(ListNames(_DIRECTORY), Names, timeout_s=CALL_TIMEOUT_S)
                for name in {*before, *names.directories}:
                    lives.seen(before, name, is_there=name in names.directories)
        except PeacefsError:
            continue
        lives.looks += 1


def _stat(name: str) -> fx.Steps[bool]:
    try:
        yield from fx.call(Stat(f"{_DIRECTORY}/{name}"), Stated, timeout_s=CALL_TIMEOUT_S)
    except FileNotFound:
        return False
    return True


class Mishaps:
    """Kills the coordinator at random times, mostly soon after changes, and fills its disk for a while."""

    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self.deaths = self.full = 0
        self._later(0.3, 3.0, self._strike)

    def _later(self, from_s: float, to_s: float, action: Callable[[], None]) -> None:
        self._cluster.world.later(self._random.uniform(from_s, to_s), action)

    def _strike(self) -> None:
        coordinator = self._cluster.coordinator
        if self._random.random() < 0.25:
            self.full += 1
            coordinator.fill_disk()
            self._later(0.01, 1.0, self._end)
            return
        self.deaths += 1
        coordinator.crash()
        self._later(0.01, 0.3, self._start)

    def _end(self) -> None:
        self._cluster.coordinator.make_room()
        self._later(0.3, 3.0, self._strike)

    def _start(self) -> None:
        self._cluster.coordinator.start()
        self._later(0.3, 3.0, self._strike)


@pytest.mark.parametrize("seed", seeds(6))
def test_names_that_anybody_has_seen_never_go_back(seed: int) -> None:
    print(f"seed {seed}")
    cluster = SimulatedCluster(seed, datanodes=0)
    world, random, lives = cluster.world, Random(seed), Lives()
    first = Change("mkdirs", _DIRECTORY, "simulated", "first", number=0o755)
    world.run_task(
        cluster.start(cluster.client("client"), "first", fx.call(first, Done, timeout_s=CALL_TIMEOUT_S)),
        limit_s=60.0,
    )
    for number in range(_WRITERS):
        work = changing(f"w{number}", lives, Random(random.random()))
        cluster.start(cluster.client(f"client-w{number}"), "changing", work)
    for number in range(_READERS):
        cluster.start(cluster.client(f"client-r{number}"), "looking", looking(lives, Random(random.random())))
    mishaps = Mishaps(cluster, random)
    world.run(lambda: False, limit_s=_PLAYED_S)
    assert lives.changes > 20 and lives.looks > 20 and mishaps.deaths > 2, (lives.changes, lives.looks)
    print(f"{lives.changes} changes, {lives.looks} looks, {mishaps.deaths} deaths, {mishaps.full} times full")
