"""Run ways of writing in turns on one emulated cluster. Every way gets the same loads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Generic, TypeVar

from peacefs.peace.simulator.simulate import Arrival

from .contest import Contest, SetTimes
from .emulation import Emulation
from .processor import ProcessorUse
from .ways import Way

L = TypeVar("L")


class Turns(ABC, Generic[L]):
    """Runs all ways in turns. The simulation uses rates that are measured at creation."""

    def __init__(self, emulated: Emulation, ways: Sequence[Way]) -> None:
        self.scale = emulated.scale
        self.hosts = [host.name for host in emulated.cluster.network.hosts]
        self.contest = Contest(emulated)
        #: Conditions of the figures; complete after `emulate`.
        self.conditions = f"{emulated.conditions}; seconds of the paper's cluster"
        self._pids = emulated.cluster.pids
        self._ways = ways

    @abstractmethod
    def arrivals(self, load: L, seed: int) -> list[Arrival]:
        """Return the write sets of a load. Hosts are the writers."""

    def emulate(self, runs: Mapping[L, int], *, kept: bool = True) -> dict[tuple[L, Way], list[list[SetTimes]]]:
        """Return the times of each way, for several seeds per load. A different way begins each time.

        `kept` is as in `Contest`.
        """
        found: dict[tuple[L, Way], list[list[SetTimes]]] = {each: [] for each in product(runs, self._ways)}
        use = ProcessorUse(self._pids)
        seeds = ((load, seed) for load, count in runs.items() for seed in range(count))
        for number, (load, seed) in enumerate(seeds):
            first = number % len(self._ways)
            for way in [*self._ways[first:], *self._ways[:first]]:
                found[load, way].append(self.contest.emulate(way, self.arrivals(load, seed), kept=kept))
        own, machine = use.shares()
        self.conditions += (
            f".\nOf all cores the services and writers used {own:.0%}, everything on the machine {machine:.0%}"
        )
        return found

    def simulate(self, load: L, way: Way, seed: int, draw: int) -> list[SetTimes]:
        """Return the simulated times. `draw` is the policy's seed."""
        return self.contest.simulate(way, self.arrivals(load, seed), draw)
