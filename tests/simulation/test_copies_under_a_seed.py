"""A tree is copied while another client changes it, one change after another, under all kinds of faults.

A copy takes many commits. It must show the tree as it was between two of the other client's changes, or not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

import pytest
from simulation.client_steps import change, list_names
from simulation.hostility import DOUBT_S, check_everything, let_calm_down
from simulation.name_changes import Change
from simulation.saboteur import Saboteur
from simulation.seeds import seeds
from simulation.simulated_cluster import SimulatedCluster
from simulation.simulated_network import Network

from peacefs.protocol.errors import FileNotFound, PeacefsError
from peacefs.runtime import effects as fx

_DIRECTORIES = ("a", "b", "c")
_NAMES_MAX = 12
_COPIES = 15

State = frozenset[str]


@dataclass
class Juggler:
    """Makes, moves and deletes names, and knows all states that the tree may have had."""

    random: Random
    states: list[State] = field(default_factory=lambda: [frozenset()])
    stopped: bool = False
    _asked: int = 0

    def work(self) -> fx.Steps[None]:
        for directory in _DIRECTORIES:
            yield from self._until_done(partial(_made, f"/tree/{directory}"))
        while not self.stopped:
            yield from self._change_something(self.states[-1])
            yield from fx.sleep(self.random.uniform(0.0, 0.01))

    def _change_something(self, before: State) -> fx.Steps[None]:
        what = self.random.choice(("write", "write", "move", "delete"))
        new = f"{self.random.choice(_DIRECTORIES)}/{self._asked}"
        old = self.random.choice(sorted(before)) if before else ""
        if not old or (what == "write" and len(before) < _NAMES_MAX):
            self.states.append(before | {new})
            yield from self._until_done(lambda asked: _made(f"/tree/{new}", asked))
        elif what == "move":
            self.states.append((before - {old}) | {new})
            yield from self._until_done(lambda asked: _moved(f"/tree/{old}", f"/tree/{new}", asked))
        else:
            self.states.append(before - {old})
            yield from self._until_done(lambda asked: _deleted(f"/tree/{old}", asked))

    def _until_done(self, steps: Callable[[str], fx.Steps[None]]) -> fx.Steps[None]:
        self._asked += 1
        asked = f"juggler-{self._asked}"
        while True:
            try:
                yield from steps(asked)
                return
            except PeacefsError:
                yield from fx.sleep(0.5)


def _made(path: str, asked: str) -> fx.Steps[None]:
    yield from change(Change("mkdirs", path, "simulated", asked, number=0o755))


def _moved(source: str, target: str, asked: str) -> fx.Steps[None]:
    yield from change(Change("move", source, "simulated", asked, target))


def _deleted(path: str, asked: str) -> fx.Steps[None]:
    yield from change(Change("delete", path, "simulated", asked))


@dataclass
class Copier:
    """Copies the tree again and again, and checks each copy."""

    juggler: Juggler
    whole: int = 0
    absent: int = 0
    #: The number of copies during which the tree changed.
    crossed: int = 0

    def work(self) -> fx.Steps[None]:
        for number in range(_COPIES):
            path = f"/copies/{number}"
            # A crash delays both clients: wait until the other one works again.
            before = len(self.juggler.states)
            while len(self.juggler.states) < before + 3:
                yield from fx.sleep(0.01)
            # A request without an answer may have been carried out.
            first = max(0, len(self.juggler.states) - 2)
            certain = True
            try:
                yield from change(Change("copy", "/tree", "simulated", path, path))
            except PeacefsError:
                certain = False
                yield from fx.sleep(DOUBT_S)
            states = self.juggler.states[first:]
            self.crossed += certain and len(states) > 2
            yield from self._check(path, states, certain=certain)

    def _check(self, path: str, states: list[State], *, certain: bool) -> fx.Steps[None]:
        while True:
            try:
                found = yield from _names_in(path)
                break
            except FileNotFound:
                assert not certain, f"{path} is not there"
                self.absent += 1
                return
            except PeacefsError:
                yield from fx.sleep(1.0)
        assert found in states, f"{path} shows {sorted(found)}, which has never been"
        self.whole += 1


def _names_in(path: str) -> fx.Steps[State]:
    top = yield from list_names(path)
    assert sorted(top.directories) == list(_DIRECTORIES) and not top.files
    names = set()
    for directory in _DIRECTORIES:
        listed = yield from list_names(f"{path}/{directory}")
        names |= {f"{directory}/{name}" for name in listed.directories}
    return frozenset(names)


@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.evidence("names-are-atomic")
def test_a_copy_is_whole_and_of_one_moment_or_not_there(seed: int) -> None:
    print(f"seed {seed}")
    cluster = SimulatedCluster(seed)
    world, random = cluster.world, Random(seed)
    cluster.until_ready()
    juggling, copying = cluster.client("client-juggler"), cluster.client("client-copier")
    making = change(Change("mkdirs", "/copies", "simulated", "copies", number=0o755))
    world.run_task(cluster.start(copying, "set up", making), limit_s=60.0)
    juggler = Juggler(Random(random.random()))
    copier = Copier(juggler)
    task = cluster.start(juggling, "juggle", juggler.work())
    world.run(lambda: len(juggler.states) > 10, limit_s=60.0)
    # Not too hostile: with long delays, both clients would mostly wait.
    world.network = Network(lose=0.001, duplicate=0.03, delay=0.05, delay_s_max=0.1)
    saboteur = Saboteur(cluster, random, effects_between=600)
    world.run_task(cluster.start(copying, "copy", copier.work()), limit_s=20_000.0)
    juggler.stopped = True
    world.run_task(task, limit_s=4000.0)
    saboteur.rest()
    let_calm_down(cluster)
    check_everything(cluster, [])
    assert copier.whole >= _COPIES / 2 and copier.crossed >= 3
    assert world.run_task(cluster.start(copying, "look", _names_in("/tree")), limit_s=60.0) == juggler.states[-1]
    print(f"{copier.whole} whole, {copier.crossed} crossed, {copier.absent} absent, {saboteur.crashes} crashes")
