"""Files are moved to the trash under crashes and lost messages: each stays for its time, and then goes.

A file in the trash can be read, byte for byte, for as long as the setting says. Then it is deleted, with its data
on all disks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from simulation.client_steps import change, list_names, read, write
from simulation.hostility import DOUBT_S, check_everything, hostile_network, let_calm_down
from simulation.name_changes import Change
from simulation.saboteur import Saboteur
from simulation.seeds import seeds
from simulation.simulated_cluster import SimulatedCluster
from simulation.world import World
from support.long_runs import often

from peacefs.coordinator.background.tasks import trash_look_interval_s
from peacefs.protocol.errors import FileNotFound, PeacefsError
from peacefs.protocol.values.trash import CURRENT_NAME, TRASH_PERMISSION, trash_of
from peacefs.runtime import effects as fx

_MINUTES = often(2, 4)
_KEPT_S = 60.0 * _MINUTES
_FILES = often(7, 25)
#: The pause after each file.
_LOOKS = 3


@dataclass
class Thrower:
    """Writes files and moves them to the trash. It remembers when it asked for that, and the contents."""

    world: World
    random: Random
    user: str
    thrown: dict[str, tuple[float, bytes]] = field(default_factory=dict)
    looked: int = 0
    expired: int = 0

    def work(self) -> fx.Steps[None]:
        for number in range(_FILES):
            yield from self._write_and_throw(f"f{number}")
            for name in self.random.sample(sorted(self.thrown), min(_LOOKS, len(self.thrown))):
                yield from self._look(name)
            yield from fx.sleep(self.random.uniform(0.0, 80.0))

    def _write_and_throw(self, name: str) -> fx.Steps[None]:
        path, current = f"/{name}-{self.user}", f"{trash_of(self.user)}/{CURRENT_NAME}"
        data = self.random.randbytes(self.random.choice((1, 700, 200_000)))
        yield from self._until_done(lambda: write(path, data, f"{path}-{self.random.random()}"), DOUBT_S)
        asked_s = self.world.now_s
        yield from self._until_done(lambda: self._change("mkdirs", current, f"{path}-place"))
        # The directory may have become a checkpoint meanwhile: make it again.
        yield from self._until_done(lambda: self._throw(path, current, name))
        self.thrown[name] = asked_s, data

    def _throw(self, path: str, current: str, name: str) -> fx.Steps[None]:
        try:
            yield from self._change("move", path, f"{path}-throw", f"{current}/{name}")
        except FileNotFound:
            yield from self._change("mkdirs", current, f"{path}-{self.random.random()}")
            raise

    def _change(self, what: str, path: str, asked: str, other: str = "") -> fx.Steps[None]:
        yield from change(Change(what, path, "simulated", asked, other, TRASH_PERMISSION))

    def _until_done(self, steps: Callable[[], fx.Steps[None]], pause_s: float = 0.5) -> fx.Steps[None]:
        while True:
            try:
                yield from steps()
                return
            except PeacefsError:
                yield from fx.sleep(pause_s)

    def _look(self, name: str) -> fx.Steps[None]:
        """Check that the file is somewhere in the trash, unchanged, unless its time may be over."""
        asked_s, data = self.thrown[name]
        while True:
            try:
                found = yield from self.find(name)
                break
            except PeacefsError:
                yield from fx.sleep(1.0)
        self.looked += 1
        self.expired += found is None
        assert found == data or (found is None and self.world.now_s > asked_s + _KEPT_S), (
            f"{name} was thrown away {self.world.now_s - asked_s:.0f} s ago, {found and len(found)} bytes are left"
        )

    def find(self, name: str) -> fx.Steps[bytes | None]:
        """Return a file in the trash, or None. Retry, since `Current` may become a checkpoint meanwhile."""
        for _ in range(3):
            listed = yield from list_names(trash_of(self.user))
            for directory in sorted(listed.directories, key=lambda each: each != CURRENT_NAME):
                try:
                    return (yield from read(f"{trash_of(self.user)}/{directory}/{name}"))
                except FileNotFound:
                    continue
        return None


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.evidence("answers-survive-kill")
def test_trash_stays_for_its_time_and_then_goes_with_its_data(seed: int) -> None:
    print(f"seed {seed}")
    cluster = SimulatedCluster(seed, trash_minutes=_MINUTES)
    world, random = cluster.world, Random(seed)
    cluster.until_ready()
    throwers = [Thrower(world, Random(random.random()), f"user-{number}") for number in range(2)]
    world.network = hostile_network()
    saboteur = Saboteur(cluster, random, effects_between=400)
    tasks = [
        cluster.start(cluster.client(f"client-{thrower.user}"), "throw", thrower.work()) for thrower in throwers
    ]
    for task in tasks:
        world.run_task(task, limit_s=20_000.0)
    saboteur.rest()
    let_calm_down(cluster)
    # One period until Current becomes a checkpoint, and one until that expires; then the coordinator checks the
    # trash.
    world.run(lambda: False, limit_s=2 * _KEPT_S + 2 * trash_look_interval_s)
    reader = cluster.client("client-reader")
    for thrower in throwers:
        for name in thrower.thrown:
            finding = cluster.start(reader, name, thrower.find(name))
            assert world.run_task(finding, limit_s=60.0) is None, f"{name} is in the trash for ever"
    assert cluster.coordinator.metadata.reader().chunks(0, 10) == []
    world.run(lambda: False, limit_s=DOUBT_S)
    check_everything(cluster, [])
    # A restarted coordinator checks the trash a minute later, so it is chance whether a run includes such a check.
    assert all(thrower.looked >= _FILES for thrower in throwers) and saboteur.crashes >= 3
    print(f"{[(thrower.looked, thrower.expired) for thrower in throwers]}, {saboteur.crashes} crashes")
